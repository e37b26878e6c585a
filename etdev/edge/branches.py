"""Branches: the conversion of programs that have wanted ops inside control flow.

Plugins claim nothing in a branch, so an op that is kept whole outside is decomposed there.
ExecuTorch can do that, at the price of tracing the program three times.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.edge.keep_whole import Wishes
from etdev.graph.nodes import graph_modules

Ask = Callable[[ExportedProgram], Wishes]


def has_wanted_ops(program: ExportedProgram, wishes: Wishes) -> bool:
    """Return True if a branch, or one within a branch, has an op that a plugin wants whole."""
    ops = wishes.shown
    branches = graph_modules(program.graph_module)[1:]
    return any(node.target in ops for branch in branches for node in branch.graph.nodes)


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
