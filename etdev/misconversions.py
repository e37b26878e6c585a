"""Misconversions: what ExecuTorch's own conversion, before anything is partitioned, would change.

`Lowerer` converts each of them as it is meant; a Partitioner can only refuse.
"""

from __future__ import annotations

from torch.export import ExportedProgram

from etdev.edge.formulas import corrections
from etdev.edge.opset import is_unknown_of_numbers
from etdev.errors import LoweringError
from etdev.graph.nodes import graph_modules, op_name
from etdev.graph.source import where


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


def refuse_unconverted(program: ExportedProgram) -> None:
    """Refuse copies of another dtype or shape to a buffer that may be read again.

    torch takes what is copied for the buffer's new value as it is, also where that is read.
    """
    nodes, signature = {n.name: n for n in program.graph.nodes}, program.graph_signature
    names = {target: name for name, target in signature.inputs_to_buffers.items()}
    written = {**signature.buffers_to_mutate, **signature.user_inputs_to_mutate}
    for name, target in written.items():
        before, after = nodes[names.get(target, target)].meta["val"], nodes[name].meta["val"]
        # Compared as text, since comparing symbolic sizes would fix them.
        if before.dtype == after.dtype and str(before.shape) == str(after.shape):
            continue
        reader = next((user for user in nodes[name].users if user.op != "output"), nodes[name])
        if reader is not nodes[name] or name in signature.user_outputs:
            raise LoweringError(
                "partitioner",
                f"ExecuTorch would keep the dtype and shape of {name}, which is copied to "
                f"{target!r}, where that is read again{where(reader)}",
                "lower with etdev.Lowerer, which converts it",
            )


def refuse_wrong_losses(program: ExportedProgram) -> None:
    """Refuse what torch itself would decompose into something else."""
    for node in program.graph.nodes:
        if getattr(node.target, "_opname", "") in corrections.WRONG:
            raise LoweringError(
                "partitioner",
                f"torch decomposes {op_name(node)} wrongly{where(node)}",
                "lower with etdev.Lowerer, which has a decomposition of its own",
            )
