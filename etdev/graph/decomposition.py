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
from etdev.graph.nodes import PIECES_OF, op_name
from etdev.graph.ops import aten_op
from etdev.graph.passes import generate
from etdev.graph.rebuild import extracted
from etdev.graph.signature import argument
from etdev.graph.symbols import unbacked, unbound, unify
from etdev.upstream.decompositions import Table
from etdev.upstream.edge import unverified
from etdev.upstream.fake_tensors import FakeTensor
from etdev.upstream.trees import pytree


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
    """Return a key that two nodes share exactly if they decompose alike."""

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
    # Sizes that depend on data have symbols of their own at each place.
    own = look(node.meta["val"]) if unbacked(node.meta["val"]) else None
    return (mode_of(node), node.target, look(node.args), kwargs, tuple(reads), own)


def mode_of(node: Node) -> Any:
    """Return the fake mode of a node's values: `s0` of another method is another `s0`."""
    values = pytree.tree_leaves([node.meta["val"], *(n.meta["val"] for n in _leaves(node))])
    return next((v.fake_mode for v in values if isinstance(v, FakeTensor)), None)


def _leaves(node: Node) -> list[Node]:
    return [n for n in pytree.tree_leaves((node.args, dict(node.kwargs))) if isinstance(n, Node)]


def alone(node: Node, owner: ExportedProgram) -> ExportedProgram:
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
    results = _results(graph, call)
    graph.output(tuple(results))
    inputs = graph.find_nodes(op="placeholder")
    signature = ExportGraphSignature(
        input_specs=[InputSpec(InputKind.USER_INPUT, argument(n), None) for n in inputs],
        output_specs=[OutputSpec(OutputKind.USER_OUTPUT, argument(n), None) for n in results],
    )
    return extracted(owner, graph, signature, {})


def _results(graph: Graph, call: Node) -> list[Node]:
    """Return an op's outputs as separate nodes."""
    values = call.meta["val"]
    if not isinstance(values, (list, tuple)):
        return [call]
    results = []
    for index, value in enumerate(values):
        item = graph.call_function(operator.getitem, (call, index))
        item.meta = {"val": value}
        results.append(item)
    return results


def by_formula(
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


def edge_pieces(
    node: Node, decomposed: ExportedProgram, config: EdgeCompileConfig, written: bool
) -> Pieces:
    """Convert the decomposition of an op to the edge dialect.

    Args:
        node: The op, in an edge program.
        decomposed: The ATen program of its pieces; it may be changed.
        config: The edge conversion's; not changed.
        written: The pieces are a formula's, and are marked so.

    Raises:
        LoweringError: The pieces have side effects, such as a check of a matrix.
    """
    with unbound(decomposed):
        # A custom op outside Core ATen stays as it is, so the program is not verified.
        edge = generate(unverified(config), decomposed, config.preserve_ops)
    if any(spec.kind == OutputKind.TOKEN for spec in edge.graph_signature.output_specs):
        raise LoweringError(
            op_name(node),
            "its pieces have side effects, and no plugin took it whole",
            "write it with other ops",
        )
    unify(edge, node.meta["val"])
    calls = [piece for piece in edge.graph.nodes if piece.op == "call_function"]
    computing = [piece for piece in calls if piece.target is not operator.getitem]
    if not written:
        return Pieces(edge, trivial=node.target in [piece.target for piece in computing])
    for piece in calls:
        piece.meta[PIECES_OF] = (op_name(node),)
    return Pieces(edge, trivial=[_call(piece) for piece in computing] == [_call(node)])


def _call(node: Node) -> Any:
    """Return the op of a node and those of its arguments that are not computed."""
    return node.target, map_arg((node.args, dict(node.kwargs)), lambda _: None)
