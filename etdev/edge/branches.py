"""Branches: the conversion of programs that have wanted ops inside control flow.

Plugins claim nothing in a branch, so an op that is kept whole outside is decomposed there.
ExecuTorch can do that, at the price of tracing the program three times.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.edge.keep_whole import Wishes
from etdev.errors import LoweringError
from etdev.graph.nodes import graph_modules
from etdev.graph.ops import is_functional
from etdev.graph.source import ops_with_lines

Ask = Callable[[ExportedProgram], Wishes]


def has_wanted_ops(program: ExportedProgram, wishes: Wishes) -> bool:
    """Return True if a branch, or one within a branch, has an op that a plugin wants whole."""
    ops = wishes.shown
    branches = graph_modules(program.graph_module)[1:]
    return any(node.target in ops for branch in branches for node in branch.graph.nodes)


def name_writes(programs: Iterable[ExportedProgram], error: Exception) -> None:
    """Say which ops of branches write to what is outside, if a conversion failed on that.

    Args:
        programs: ATen programs.
        error: What ExecuTorch raised.

    Raises:
        LoweringError: There are such ops.
    """
    if "is not functional" not in str(error):
        return
    branches = [module for p in programs for module in graph_modules(p.graph_module)[1:]]
    nodes = [node for branch in branches for node in branch.graph.nodes if _writes_outside(node)]
    if nodes:
        raise LoweringError(
            "edge conversion",
            f"a branch or a loop's body writes to what is outside with {ops_with_lines(nodes)}, "
            "which ExecuTorch can't do",
            "return the new value from every branch, and write it after torch.cond",
        ) from error


def _writes_outside(node: Node) -> bool:
    op = node.target
    if not isinstance(op, OpOverload) or not op._schema.is_mutable:
        return False
    written = node.args[0]
    # What is a view of an input, or was written before, is that input.
    while isinstance(written, Node) and isinstance(written.target, OpOverload):
        if is_functional(written.target):
            return False
        written = written.args[0]
    return isinstance(written, Node) and written.op == "placeholder"


def to_edge(program: ExportedProgram, ask: Ask, config: EdgeCompileConfig) -> ExportedProgram:
    """Convert a program, keeping wanted ops whole only outside its branches."""
    # Verified once, by the manager, instead of after every step.
    config = copy.copy(config)
    config._check_ir_validity = False
    # With gradients, torch traces each branch once more, and takes symbols of the program for its.
    with torch.no_grad():
        manager = to_edge_transform_and_lower(
            program, partitioner=[_KeepsWhole(ask)], compile_config=config
        )
    return manager.exported_program()  # type: ignore[no-any-return]


def whole_ops(
    program: ExportedProgram, ask: Ask
) -> tuple[list[Any], Callable[[Node], bool] | None]:
    """The plugins' wishes as ExecuTorch's `Partitioner.ops_to_not_decompose` wants them."""
    # ExecuTorch asks again with the edge program, to complain about whole ops that were not
    # delegated. The plan takes care of those.
    if program.dialect == "EDGE":
        return [], None
    wishes = ask(program)
    return wishes.ops, wishes.mark if wishes.ops else None


class _KeepsWhole(Partitioner):  # type: ignore[misc]
    """Delegates nothing; ExecuTorch asks partitioners which ops to keep whole."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], Any]:
        return whole_ops(ep, self._ask)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        return PartitionResult(exported_program, {})
