"""The expansion of single ops that were kept whole or have no kernel into their decompositions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from attrs import define, evolve, field
from executorch.exir import EdgeCompileConfig
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.decomposition import Pieces, alone, by_formula, edge_pieces, key_of, mode_of
from etdev.graph.inlining import Expanded, inlined
from etdev.graph.nodes import op_name, pieces_of
from etdev.graph.ops import aten_op
from etdev.graph.symbols import settled
from etdev.upstream.decompositions import Table, executorch_table


@define(eq=False)
class Expander:
    """Decomposes whole ops of edge programs; the same op on the same shapes only once.

    Args:
        compile_config: The edge conversion's; not changed.
        simplify: Removes redundant work from pieces; None leaves them as they are.
        kept: Ops that stay whole in pieces until `formula_of` is asked about them.
        table: All decompositions of ExecuTorch, but for the ops that its caller wants whole.
    """

    compile_config: EdgeCompileConfig = field(factory=EdgeCompileConfig)
    simplify: Callable[[ExportedProgram], ExportedProgram] | None = None
    kept: set[Any] = field(init=False, factory=set)
    table: Table = field(init=False)
    _known: dict[Hashable, Pieces] = field(init=False, factory=dict)
    _simpler: dict[Hashable, Pieces] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        table = dict(executorch_table())
        for op in self.compile_config.preserve_ops:
            table.pop(op, None)
        self.table = table

    def formula_of(self, node: Node) -> Callable[..., Any] | None:
        """Return the decomposition of a node that is not in the table, or None."""
        return None

    def finishes(self, op: object) -> bool:
        """Return True if `finish` decomposes an op."""
        return False

    def finish(self, program: ExportedProgram, table: Table) -> ExportedProgram:
        """Complete the decomposition of a program that was decomposed by a table."""
        return program

    def decomposable(self, program: ExportedProgram, names: Iterable[str]) -> list[str]:
        """Return those of some nodes that have a decomposition."""
        nodes = {node.name: node for node in program.graph.nodes}
        return [name for name in names if self.has_pieces(nodes[name], program)]

    def expand(self, program: ExportedProgram, names: Iterable[str]) -> Expanded:
        """Decompose some whole ops of a program; the program itself is not changed.

        The pieces of an op have the same names whichever other ops are expanded with it.
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

    def has_pieces(self, node: Node, program: ExportedProgram) -> bool:
        """Return True if a node of a program, or of one of its branches, has a decomposition."""
        # Most ops are in no table, which spares tracing them. And a plugin that writes an op with
        # the same op means it to stay.
        op = aten_op(node.target)
        if op_name(node) in pieces_of(node):
            return False
        if op not in self.table and self.formula_of(node) is None and not self.finishes(op):
            return False
        return not self.pieces(node, program).trivial

    def pieces(self, node: Node, program: ExportedProgram) -> Pieces:
        """Return the pieces of a node of a program, or of one of its branches."""
        key = key_of(node)
        if key not in self._known:
            self._known[key] = self._decomposed(node, program)
        return self._known[key]

    def _decomposed(self, node: Node, program: ExportedProgram) -> Pieces:
        """Run one op by itself through the decomposition and the edge conversion."""
        op = aten_op(node.target)
        table = {o: pieces for o, pieces in self.table.items() if o is op or o not in self.kept}
        formula, single = self.formula_of(node), alone(node, program)
        with settled(mode_of(node)):
            if formula is None:
                written = single.run_decompositions(table)
            else:
                written = by_formula(single, op, table, formula)
                table.pop(op, None)
            if written is None:
                return Pieces(single, trivial=True)
            written = self.finish(written, table)
            pieces = edge_pieces(node, written, self.compile_config, formula is not None)
        if pieces.trivial:
            return pieces
        inner = pieces.program
        known = [
            piece.name
            for piece in inner.graph.nodes
            if aten_op(piece.target) in self.kept and self.has_pieces(piece, inner)
        ]
        return evolve(pieces, program=self.expand(inner, known).program)

    def _simplified(self, node: Node, program: ExportedProgram) -> Pieces:
        """Simplify the pieces of an op by themselves, so that they are the same everywhere."""
        pieces = self.pieces(node, program)
        if self.simplify is None or pieces.trivial:
            return pieces
        key = key_of(node)
        if key not in self._simpler:
            self._simpler[key] = evolve(pieces, program=self.simplify(pieces.program))
        return self._simpler[key]


class Unexpanding(Expander):
    """An expander that knows no decomposition, for programs that must stay as they are."""

    def decomposable(self, program: ExportedProgram, names: Iterable[str]) -> list[str]:
        """Return nothing."""
        return []
