"""Expansion: ops that were kept whole are decomposed after all where no plugin took them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from attrs import define, evolve, field
from executorch.exir import EdgeCompileConfig
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.decomposition import Finish, Pieces, decompose, key_of
from etdev.graph.inlining import Expanded, inlined
from etdev.graph.ops import aten_op
from etdev.upstream.decompositions import Table, executorch_table

FormulaOf = Callable[[Node], Callable[..., Any] | None]
Simplify = Callable[[ExportedProgram], ExportedProgram]


@define(eq=False)
class Expander:
    """Decomposes whole ops of edge programs; the same op on the same shapes only once.

    Args:
        compile_config: The edge conversion's; not changed.
        formula_of: The decomposition of a node that ExecuTorch leaves whole; None if it has none.
        simplify: Takes out of pieces what computes nothing new; None leaves them as they are.
        corrected: Decompositions instead of ExecuTorch's.
        finish: What else the conversion does with a program that is decomposed by the table.
        finishes: Whether that decomposes an op.
        settle: Fixes what ExecuTorch would get wrong in a decomposed program.
        table: All decompositions, but for the ops that its caller wants whole.
    """

    compile_config: EdgeCompileConfig = field(factory=EdgeCompileConfig)
    formula_of: FormulaOf = field(default=lambda node: None)
    simplify: Simplify | None = None
    corrected: Table = field(factory=dict)
    finish: Finish = field(default=lambda program, table: program)
    finishes: Callable[[object], bool] = field(default=lambda op: False)
    settle: Callable[[ExportedProgram], ExportedProgram] = field(default=lambda program: program)
    _known: dict[Hashable, Pieces] = field(factory=dict)
    _simpler: dict[Hashable, Pieces] = field(factory=dict)
    table: Table = field(init=False)

    def __attrs_post_init__(self) -> None:
        table = {**executorch_table(), **self.corrected}
        for op in self.compile_config.preserve_ops:
            table.pop(op, None)
        self.table = table

    def decomposable(self, program: ExportedProgram, names: Iterable[str]) -> list[str]:
        """Those of some whole ops that have a decomposition."""
        nodes = {node.name: node for node in program.graph.nodes}
        return [name for name in names if self._has_pieces(nodes[name], program)]

    def expand(self, program: ExportedProgram, names: Iterable[str]) -> Expanded:
        """Decompose some whole ops of a program; the program itself is not changed.

        A node is its name, in every form of a method: the pieces of an op have the same names
        whichever other ops are expanded with it.
        """
        wanted = set(names)
        if not wanted:
            return Expanded(program, {})
        pieces = {
            node: self._simplified(node, program)
            for node in program.graph.nodes
            if node.name in wanted
        }
        return inlined(program, pieces)

    def formula_pieces(self, node: Node, program: ExportedProgram) -> Pieces | None:
        """The pieces of a node that has a formula; None if it has none, or if that can't do it.

        Args:
            node: A node of the program or of one of its branches.
            program: An edge-dialect program.
        """
        if self.formula_of(node) is None:
            return None
        pieces = self._pieces(node, program)
        return None if pieces.trivial else pieces

    def _has_pieces(self, node: Node, program: ExportedProgram) -> bool:
        # Most ops are in no table, which spares tracing them.
        op = aten_op(node.target)
        if op not in self.table and self.formula_of(node) is None and not self.finishes(op):
            return False
        return not self._pieces(node, program).trivial

    def _simplified(self, node: Node, program: ExportedProgram) -> Pieces:
        """The pieces of an op by themselves, so that they are the same in every form."""
        pieces = self._pieces(node, program)
        if self.simplify is None or pieces.trivial:
            return pieces
        key = key_of(node)
        if key not in self._simpler:
            self._simpler[key] = evolve(pieces, program=self.simplify(pieces.program))
        return self._simpler[key]

    def _pieces(self, node: Node, program: ExportedProgram) -> Pieces:
        key = key_of(node)
        if key not in self._known:
            self._known[key] = decompose(
                node,
                program,
                self.compile_config,
                self.table,
                self.formula_of(node),
                self.finish,
                self.settle,
            )
        return self._known[key]
