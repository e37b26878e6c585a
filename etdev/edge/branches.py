"""Branches: the conversion of programs that have wanted ops inside control flow.

Nobody claims in a branch, so that an op which is kept whole outside is decomposed there. ExecuTorch
can do that, at the price of tracing the program three times.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from executorch.exir.graph_module import get_control_flow_submodules
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.edge.keep_whole import Wishes

Ask = Callable[[ExportedProgram], Wishes]


def has_wanted_ops(program: ExportedProgram, wishes: Wishes) -> bool:
    """Whether some branch has an op that some plugin wants whole."""
    ops = set(wishes.ops)
    return any(
        node.target in ops
        for _, branch, _ in get_control_flow_submodules(program.graph_module)
        for node in branch.graph.nodes
    )


def to_edge(program: ExportedProgram, ask: Ask, config: EdgeCompileConfig) -> ExportedProgram:
    """Convert a program, keeping wanted ops whole outside its branches only."""
    manager = to_edge_transform_and_lower(
        program, partitioner=[_KeepsWhole(ask)], compile_config=copy.copy(config)
    )
    return manager.exported_program()  # type: ignore[no-any-return]


def whole_ops(
    program: ExportedProgram, ask: Ask
) -> tuple[list[Any], Callable[[Node], bool] | None]:
    """The plugins' wishes as ExecuTorch's `Partitioner.ops_to_not_decompose` wants them."""
    # ExecuTorch asks again with the edge program, to complain of whole ops that nobody has taken.
    # The plan sees to those.
    if program.dialect == "EDGE":
        return [], None
    wishes = ask(program)
    return wishes.ops, wishes.mark if wishes.ops else None


class _KeepsWhole(Partitioner):  # type: ignore[misc]
    """Delegates nothing; the partitioner API is ExecuTorch's way to ask for whole ops."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], Any]:
        return whole_ops(ep, self._ask)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        return PartitionResult(exported_program, {})
