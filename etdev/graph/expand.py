"""The expansion of single ops that were kept whole or have no kernel into their decompositions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from attrs import define, field
from executorch.exir import EdgeCompileConfig
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from etdev.errors import LoweringError
from etdev.graph.inlining import Expanded, inlined
from etdev.graph.nodes import PIECES_OF, op_name, pieces_of
from etdev.graph.ops import aten_op
from etdev.graph.rebuild import extracted
from etdev.graph.signature import argument
from etdev.graph.symbols import fake_mode, settled, unbacked, unbound, unify
from etdev.upstream.decompositions import Table, executorch_table
from etdev.upstream.edge import to_edge_program
from etdev.upstream.fake_tensors import FakeTensorMode
from etdev.upstream.trees import pytree


@define(eq=False)
class Expander:
    """Decomposes whole ops of edge programs; the same op on the same shapes only once."""

    compile_config: EdgeCompileConfig = field(factory=EdgeCompileConfig)
    # Removes redundant work from a program or, with `pieces`, from the pieces of an op.
    simplify: Callable[..., ExportedProgram] | None = None
    # Ops that stay whole in pieces until `formula_of` is asked about them.
    kept: set[Any] = field(init=False, factory=set)
    # ExecuTorch's decompositions, but for the ops that its caller wants whole.
    table: Table = field(kw_only=True)
    # A program of the pieces, whose inputs are the op's tensors and sizes in order of use.
    _known: dict[Hashable, ExportedProgram | None] = field(init=False, factory=dict)

    @table.default
    def _executorch_table(self) -> Table:
        whole = self.compile_config.preserve_ops
        return {op: pieces for op, pieces in executorch_table().items() if op not in whole}

    def formula_of(self, node: Node) -> Callable[..., Any] | None:
        """Return the decomposition of a node that is not in the table, or None."""
        return None

    def finishes(self, op: object) -> bool:
        """Return True if `finish` decomposes an op."""
        return False

    def finish(self, program: ExportedProgram, method: str, table: Table) -> ExportedProgram:
        """Complete the decomposition of a program that was decomposed by a table."""
        return program

    def expand(self, program: ExportedProgram, method: str, names: Iterable[str]) -> Expanded:
        """Decompose some whole ops of a method; its program itself is not changed.

        The pieces of an op have the same names whichever other ops are expanded with it.
        """
        wanted = set(names)
        nodes = [node for node in program.graph.nodes if node.name in wanted]
        pieces = {node: own for node in nodes if (own := self.pieces(node, program, method))}
        return inlined(program, pieces) if pieces else Expanded(program, {})

    def pieces(self, node: Node, program: ExportedProgram, method: str) -> ExportedProgram | None:
        """Return the pieces of a node of a method or of one of its branches, if it has any."""
        # Most ops are in no table, which spares tracing them. And a plugin that writes an op with
        # the same op means it to stay.
        op = aten_op(node.target)
        if op_name(node) in pieces_of(node):
            return None
        if op not in self.table and self.formula_of(node) is None and not self.finishes(op):
            return None
        key = _key(node)
        if key not in self._known:
            self._known[key] = self._decomposed(node, program, method)
        return self._known[key]

    def _decomposed(
        self, node: Node, program: ExportedProgram, method: str
    ) -> ExportedProgram | None:
        """Run one op by itself through the decomposition and the edge conversion."""
        op = aten_op(node.target)
        table = {o: pieces for o, pieces in self.table.items() if o is op or o not in self.kept}
        formula, single = self.formula_of(node), _alone(node, program)
        with settled(_mode(node)):
            if formula is None:
                written = single.run_decompositions(table)
            else:
                written = _by_formula(single, op, table, formula)
                table.pop(op, None)
            if written is None:
                return None
            written = self.finish(written, method, table)
            edge = self._to_edge(node, written, formula is not None)
        if edge is None:
            return None
        kept = [piece.name for piece in edge.graph.nodes if aten_op(piece.target) in self.kept]
        pieces = self.expand(edge, method, kept).program
        # Simplified by themselves, they are the same everywhere.
        return self.simplify(pieces, pieces=True) if self.simplify else pieces

    def _to_edge(
        self, node: Node, decomposed: ExportedProgram, by_formula: bool
    ) -> ExportedProgram | None:
        """Convert the pieces of an op to the edge dialect; None if they are that op again."""
        config = self.compile_config
        with unbound(decomposed):
            edge = to_edge_program(config, decomposed, config.preserve_ops)
        if any(spec.kind == OutputKind.TOKEN for spec in edge.graph_signature.output_specs):
            what = "its pieces have side effects, and no plugin took it whole"
            raise LoweringError(op_name(node), what, "write it with other ops")
        unify(edge, node.meta["val"])
        calls = [piece for piece in edge.graph.nodes if piece.op == "call_function"]
        computing = [piece for piece in calls if piece.target is not operator.getitem]
        if not by_formula:
            return None if node.target in [piece.target for piece in computing] else edge
        for piece in calls:
            piece.meta[PIECES_OF] = (op_name(node),)
        # A formula may call the same op with arguments that a kernel can compute.
        return None if [_call(piece) for piece in computing] == [_call(node)] else edge


def _call(node: Node) -> Any:
    """Return the op of a node and those of its arguments that are not computed."""
    return node.target, map_arg((node.args, dict(node.kwargs)), lambda _: None)


def _key(node: Node) -> Hashable:
    """Return a key that two nodes share exactly if they decompose alike."""

    def look(value: Any) -> Hashable:
        if isinstance(value, Node):
            # A node that reads one tensor twice is not like one that reads two tensors.
            return node.all_input_nodes.index(value), look(value.meta["val"])
        if isinstance(value, torch.Tensor):
            sizes = (*map(str, value.shape), "|", *map(str, value.stride()))
            return ("tensor", str(value.dtype), sizes, str(value.device))
        if isinstance(value, (list, tuple)):
            return tuple(look(item) for item in value)
        return (type(value).__name__, str(value))

    kwargs = tuple((name, look(value)) for name, value in sorted(node.kwargs.items()))
    # Sizes that depend on data have symbols of their own at each place.
    own = look(node.meta["val"]) if unbacked(node.meta["val"]) else None
    return (_mode(node), node.target, look(node.args), kwargs, own)


def _mode(node: Node) -> FakeTensorMode | None:
    """Return the fake mode of a node's values: `s0` of another method is another `s0`."""
    return fake_mode((node, *node.all_input_nodes))


def _alone(node: Node, owner: ExportedProgram) -> ExportedProgram:
    """Return an ATen program that calls one op of an edge program, which is not changed."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for index, source in enumerate(node.all_input_nodes):
        copies[source] = graph.placeholder(f"arg_{index}")
        copies[source].meta = {"val": source.meta["val"]}
    if not any(isinstance(n.meta["val"], torch.Tensor) for n in copies):
        # ExecuTorch takes the fake mode of the results from an input.
        graph.placeholder("mode").meta = {"val": pytree.tree_leaves(node.meta["val"])[0]}
    call = graph.call_function(
        aten_op(node.target),
        map_arg(node.args, copies.__getitem__),
        map_arg(node.kwargs, copies.__getitem__),
    )
    call.meta = {"val": node.meta["val"]}
    results = [call]
    if isinstance(call.meta["val"], (list, tuple)):
        results = []
        for index, value in enumerate(call.meta["val"]):
            results.append(graph.call_function(operator.getitem, (call, index)))
            results[-1].meta = {"val": value}
    graph.output(tuple(results))
    inputs = graph.find_nodes(op="placeholder")
    signature = ExportGraphSignature(
        input_specs=[InputSpec(InputKind.USER_INPUT, argument(n), None) for n in inputs],
        output_specs=[OutputSpec(OutputKind.USER_OUTPUT, argument(n), None) for n in results],
    )
    return extracted(owner, graph, signature, {})


def _by_formula(
    program: ExportedProgram, op: Any, table: Table, formula: Callable[..., Any]
) -> ExportedProgram | None:
    """Write an op as a formula does; return None if the formula can't express it.

    A piece may be the same op, with arguments that a kernel can compute.
    """
    inside = False

    def outside(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return table[op](*args, **kwargs) if op in table else NotImplemented
        # torch may ask twice: for the sizes of the results, and for the pieces.
        inside = True
        try:
            return formula(*args, **kwargs)
        finally:
            inside = False

    try:
        written: ExportedProgram = program.run_decompositions({**table, op: outside})
    except Exception:
        return None
    return written
