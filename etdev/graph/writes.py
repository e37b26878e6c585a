"""Writes in place of a program that is not functional yet, and the memory that nodes share."""

from __future__ import annotations

from collections.abc import Iterator

from torch.fx import Graph, Node

from etdev.graph.ops import is_functional
from etdev.upstream.operators import OpOverload, base_name, is_composite, schema_of

# Layers that torch composes of other ops and that always compute a new value. Other compositions
# may return their input, as dropout and einsum do, whatever their schemas say.
_COMPOSED = {
    *("batch_norm", "conv1d", "conv2d", "conv3d", "group_norm", "instance_norm", "layer_norm"),
    *("linear", "log_softmax", "matmul", "scaled_dot_product_attention", "softmax"),
}


def places_written(graph: Graph) -> dict[Node, list[int]]:
    """Return the positions of the nodes that write a tensor, for each tensor that is written."""
    places: dict[Node, list[int]] = {}
    for position, node in enumerate(graph.nodes):
        for written in written_by(node):
            places.setdefault(owner_of(written), []).append(position)
    return places


def owner_of(node: Node) -> Node:
    """Return the node that owns the memory of a node's value."""
    while node.op == "call_function" and _aliases(node.target) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _aliases(op: object) -> bool:
    if not isinstance(op, OpOverload):
        return getattr(op, "__name__", "") == "getitem"
    return any(value.alias_info is not None for value in schema_of(op).returns)


def written_by(node: Node) -> Iterator[Node]:
    """Yield the arguments that a node writes to."""
    op = node.target
    if not isinstance(op, OpOverload):
        return
    for index, argument in enumerate(schema_of(op).arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        if isinstance(value, Node):
            yield value


def may_hand_on(node: Node) -> bool:
    """Return True if an op may return its input, though its schema promises a new value."""
    op = node.target
    if not isinstance(op, OpOverload) or not is_functional(op) or base_name(op) in _COMPOSED:
        return False
    return is_composite(op) or base_name(op) == "_unsafe_view"


def written_through(graph: Graph) -> list[Node]:
    """Return the nodes that may return their input, where input or result is written later."""
    memory: dict[Node, set[Node]] = {}
    last: dict[Node, int] = {}
    for position, node in enumerate(graph.nodes):
        given = {place for source in node.all_input_nodes for place in memory[source]}
        shares = node.op == "call_function" and _aliases(node.target)
        memory[node] = given if shares else {node, *given} if may_hand_on(node) else {node}
        last |= {place: position for written in written_by(node) for place in memory[written]}
    return [
        node
        for position, node in enumerate(graph.nodes)
        if may_hand_on(node) and any(last.get(place, -1) > position for place in memory[node])
    ]
