"""The pieces that one op of an edge program decomposes into."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from typing import Any

import torch
from attrs import frozen
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
from etdev.graph.generation import generate
from etdev.graph.nodes import PIECES_OF, op_name
from etdev.graph.ops import aten_op
from etdev.graph.rebuild import extracted
from etdev.graph.signature import argument
from etdev.graph.symbols import settled, unbacked, unbound, unify
from etdev.upstream.decompositions import Table
from etdev.upstream.edge import unverified
from etdev.upstream.fake_tensors import FakeTensor
from etdev.upstream.trees import pytree

Finish = Callable[[ExportedProgram, Table], ExportedProgram]
Settle = Callable[[ExportedProgram], ExportedProgram]


@frozen(eq=False)
class Pieces:
    """The pieces that an op decomposes into.

    Args:
        program: Edge program whose inputs are the op's tensors and symbolic sizes in order of use.
        trivial: The op has no decomposition; the program is that op again.
    """

    program: ExportedProgram
    trivial: bool


def key_of(node: Node) -> Hashable:
    """A key that two nodes share exactly if they decompose alike."""

    def look(value: Any) -> Hashable:
        if isinstance(value, Node):
            value = value.meta["val"]
        if isinstance(value, torch.Tensor):
            sizes = (*map(str, value.shape), "|", *map(str, value.stride()))
            return ("tensor", str(value.dtype), sizes, str(value.device))
        if isinstance(value, (list, tuple)):
            return tuple(look(item) for item in value)
        return (type(value).__name__, str(value))

    # A node that reads one tensor twice is not like one that reads two tensors.
    reads = [node.all_input_nodes.index(n) for n in _leaves(node)]
    kwargs = tuple((name, look(value)) for name, value in sorted(node.kwargs.items()))
    # What depends on data has symbols of its own at each place.
    own = look(node.meta["val"]) if unbacked(node.meta["val"]) else None
    return (_mode(node), node.target, look(node.args), kwargs, tuple(reads), own)


def _mode(node: Node) -> Any:
    """What the shapes of a method's fake tensors mean: `s0` of another method is another `s0`."""
    values = pytree.tree_leaves([node.meta["val"], *(n.meta["val"] for n in _leaves(node))])
    return next((v.fake_mode for v in values if isinstance(v, FakeTensor)), None)


def _leaves(node: Node) -> list[Node]:
    return [n for n in pytree.tree_leaves((node.args, dict(node.kwargs))) if isinstance(n, Node)]


def decompose(
    node: Node,
    owner: ExportedProgram,
    compile_config: EdgeCompileConfig,
    table: Table,
    formula: Callable[..., Any] | None = None,
    finish: Finish = lambda program, table: program,
    settle: Settle = lambda program: program,
) -> Pieces:
    """Run one op by itself through ExecuTorch's own decomposition and edge conversion.

    Args:
        node: The op, in an edge program.
        owner: That program; it is not changed.
        compile_config: The edge conversion's; not changed.
        table: ExecuTorch's decompositions.
        formula: Its decomposition, if that is a plugin's.
        finish: What else the conversion does with a program that is decomposed by the table.
        settle: Fixes what ExecuTorch would get wrong in a decomposed program.

    Raises:
        LoweringError: Its pieces have side effects, such as a check of a matrix.
    """
    op = aten_op(node.target)
    graph = Graph()
    copies: dict[Node, Node] = {}
    for index, source in enumerate(node.all_input_nodes):
        copies[source] = graph.placeholder(f"arg_{index}")
        copies[source].meta = {"val": source.meta["val"]}
    if not any(isinstance(n.meta["val"], torch.Tensor) for n in copies):
        # Nothing else would tell ExecuTorch the fake mode of the results.
        graph.placeholder("mode").meta = {"val": pytree.tree_leaves(node.meta["val"])[0]}
    call = graph.call_function(
        op,
        map_arg(node.args, copies.__getitem__),
        map_arg(node.kwargs, copies.__getitem__),
    )
    call.meta = {"val": node.meta["val"]}
    results = _results(graph, call)
    graph.output(tuple(results))
    inputs = graph.find_nodes(op="placeholder")
    signature = ExportGraphSignature(
        input_specs=[InputSpec(InputKind.USER_INPUT, argument(n), None) for n in inputs],
        output_specs=[OutputSpec(OutputKind.USER_OUTPUT, argument(n), None) for n in results],
    )
    program = extracted(owner, graph, signature, {})
    # A custom op is not a core ATen op, which is no reason to complain: it stays as it is.
    config = unverified(compile_config)
    with settled(_mode(node)):
        written = _written(program, op, table, formula) if formula else None
        if formula and written is None:
            return Pieces(program, trivial=True)
        if written is not None:
            table = {other: pieces for other, pieces in table.items() if other is not op}
        else:
            written = program.run_decompositions(dict(table))
        edge = _edge_of(node, settle(finish(written, table)), config)
    unify(edge, node.meta["val"])
    calls = [piece for piece in edge.graph.nodes if piece.op == "call_function"]
    computing = [piece for piece in calls if piece.target is not operator.getitem]
    if not formula:
        return Pieces(edge, trivial=node.target in [piece.target for piece in computing])
    for piece in calls:
        piece.meta[PIECES_OF] = (op_name(node),)
    return Pieces(edge, trivial=[_call(piece) for piece in computing] == [_call(node)])


def _call(node: Node) -> Any:
    """Return the op of a node and those of its arguments that are not computed."""
    return node.target, map_arg((node.args, dict(node.kwargs)), lambda _: None)


def _written(
    program: ExportedProgram, op: Any, table: Table, formula: Callable[..., Any]
) -> ExportedProgram | None:
    """Write an op as a formula does; return None if that can't express it.

    A piece may be the same op, given what a kernel can compute.
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


def _edge_of(node: Node, decomposed: ExportedProgram, config: EdgeCompileConfig) -> ExportedProgram:
    with unbound(decomposed):
        edge = generate(config, decomposed, config.preserve_ops)
    if any(spec.kind == OutputKind.TOKEN for spec in edge.graph_signature.output_specs):
        raise LoweringError(
            op_name(node),
            "its pieces have side effects, and no plugin took it whole",
            "write it with other ops",
        )
    return edge


def _results(graph: Graph, call: Node) -> list[Node]:
    """An op's outputs as separate nodes."""
    values = call.meta["val"]
    if not isinstance(values, (list, tuple)):
        return [call]
    results = []
    for index, value in enumerate(values):
        item = graph.call_function(operator.getitem, (call, index))
        item.meta = {"val": value}
        results.append(item)
    return results
