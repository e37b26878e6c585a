"""Positions that depend on data, such as the row of `x[i]` for an integer tensor `i`."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from etdev.graph.rebuild import copy_graph, rebuilt

_SELECT = torch.ops.aten.select.int
_CHECK = torch.ops.aten._assert_scalar.default


def with_known_positions(program: ExportedProgram) -> ExportedProgram:
    """Take positions that may be negative or out of range modulo the size of their dimension.

    torch's passes ask whether a position is negative or out of range, and stop where nothing tells.
    One that counts from the end stays the same so, and eager PyTorch refuses one out of range.

    Args:
        program: An ATen program; it is not changed.
    """
    unknown = {node.name for node in program.graph.nodes if _may_be_out(node)}
    if not unknown:
        return program
    graph = copy_graph(program.graph)
    for node in graph.find_nodes(op="call_function", target=_SELECT):
        if node.name in unknown:
            source, dim, position = node.args
            with graph.inserting_before(node):
                inside = _inside(graph, node, position, _size(graph, source, dim))
            node.args = (source, dim, inside)
            # Where its row begins is no longer a symbol of its own.
            row = _SELECT(source.meta["val"], dim, inside.meta["val"])
            node.meta = {**_described(node), "val": row}
    return rebuilt(program, graph, program.graph_signature, program.graph_module)


def _may_be_out(node: Node) -> bool:
    """Whether a row is selected of which nothing is known, or too little."""
    if node.target is not _SELECT or not isinstance(node.args[2], Node):
        return False
    source, dim, position = node.args
    value, size = position.meta["val"], source.meta["val"].shape[dim]  # type: ignore[union-attr]
    ranges = ((value >= 0, value < size), (value < 0, value >= -size))
    return not any(all(map(statically_known_true, limits)) for limits in ranges)


def _described(node: Node) -> dict[str, Any]:
    """Where a node comes from, without the symbols that its own value has."""
    return {key: value for key, value in node.meta.items() if key != "unbacked_bindings"}


def _inside(graph: Graph, node: Node, position: Any, size: Any) -> Node:
    """A position that counts from the start.

    The runtime's remainder has the sign of the position, and torch's that of the size.
    """

    def call(function: Any, one: Any, other: Any) -> Node:
        result = graph.call_function(function, (one, other))
        result.meta = {**_described(node), "val": function(_value(one), _value(other))}
        return result

    inside = call(operator.add, call(operator.mod, position, size), size)
    inside = call(operator.mod, inside, size)
    if isinstance(size, Node):
        known = call(operator.lt, inside, size)
        check = graph.call_function(_CHECK, (known, "a position is in its dimension"))
        check.meta = {**_described(node), "val": None}
    return inside


def _size(graph: Graph, source: Node, dim: int) -> Any:
    """The size that a position is in: an int, or a node of it."""
    size = source.meta["val"].shape[dim]
    if isinstance(size, int):
        return size
    node = graph.call_function(torch.ops.aten.sym_size.int, (source, dim))
    node.meta = {**_described(source), "val": size}
    return node


def _value(value: Any) -> Any:
    return value.meta["val"] if isinstance(value, Node) else value
