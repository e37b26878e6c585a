"""Misconversions: what ExecuTorch's own conversion, before anything is partitioned, would change.

`Lowerer` converts each of them as it is meant; a Partitioner can only refuse.
"""

from __future__ import annotations

from torch.export import ExportedProgram

from etdev.edge.opset import is_unknown_of_numbers
from etdev.errors import LoweringError
from etdev.graph.nodes import graph_modules, op_name
from etdev.graph.source import where

# torch decomposes them wrongly for ordinary values.
_WRONG = ("multilabel_margin_loss", "multilabel_margin_loss_forward")


def refuse_numbers(program: ExportedProgram) -> None:
    """Refuse computations of numbers that ExecuTorch has no op for."""
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if node.op == "call_function" and is_unknown_of_numbers(node):
                raise LoweringError(
                    "partitioner",
                    f"ExecuTorch has no op for {op_name(node)} of numbers{where(node)}",
                    "compute it with tensors",
                )


def refuse_wrong_losses(program: ExportedProgram) -> None:
    """Refuse what torch itself would decompose into something else."""
    for node in program.graph.nodes:
        if getattr(node.target, "_opname", "") in _WRONG:
            raise LoweringError(
                "partitioner",
                f"torch decomposes {op_name(node)} wrongly{where(node)}",
                "lower with etdev.Lowerer, which has a decomposition of its own",
            )
