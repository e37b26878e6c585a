"""ATen ops: their names in the edge dialect, what they write, and the memory that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.fx import Graph, Node

from etdev.upstream.operators import (
    HigherOrderOperator,
    OpOverload,
    base_name,
    is_composite,
    overload_of,
    schema_of,
)

# Calls an op with effects; the calls keep their order by a token that each takes and returns.
ORDERED = torch.ops.higher_order.with_effects
_FLOWS = ("cond", "map_impl", "scan", "while_loop")
# Layers that torch composes of other ops and that always compute a new value. Other compositions
# may return their input, as dropout and einsum do, whatever their schemas say.
_COMPOSED = {
    *("batch_norm", "conv1d", "conv2d", "conv3d", "group_norm", "instance_norm", "layer_norm"),
    *("linear", "log_softmax", "matmul", "scaled_dot_product_attention", "softmax"),
}


def edge_name(op: Any) -> str:
    """Return an ATen op's name in the edge dialect: `aten.split_copy.Tensor` for `split`."""
    if isinstance(op, OpOverload) and op.namespace == "aten" and _is_view(op):
        packet, _, overload = str(op).rpartition(".")
        return f"{packet}_copy.{overload}"
    return str(op)


def sibling(op: OpOverload, name: str) -> OpOverload | None:
    """Return the same overload of another op of the namespace, if there is one."""
    packet = getattr(getattr(torch.ops, op.namespace), name, None)
    found = getattr(packet, str(op).rpartition(".")[2], None)
    return found if isinstance(found, OpOverload) else None


_MOVES = (
    *("alias", "cat", "clone", "constant_pad_nd", "detach", "expand", "flip", "permute", "repeat"),
    *("roll", "select", "slice", "split", "split_with_sizes", "squeeze", "stack", "t", "transpose"),
    *("unsqueeze", "view", "_clone_dim_order"),
)


def aten_op(target: Any) -> Any:
    """Return the ATen op that an edge op was before: `aten.split.Tensor` for `split_copy`."""
    op = overload_of(target)
    if op and op.namespace == "aten" and base_name(op).endswith("_copy"):
        before = sibling(op, base_name(op).removesuffix("_copy"))
        if before is not None and _is_view(before):
            return before
    return op or target


def moves(node: Node) -> bool:
    """Return True if a node moves or repeats values of its input and computes nothing."""
    op = overload_of(node.target)
    return op is not None and base_name(op).removesuffix("_copy") in _MOVES


def is_functional(op: OpOverload) -> bool:
    """Return True if an op writes to nothing and returns no memory of its inputs."""
    schema = schema_of(op)
    return not schema.is_mutable and not any(value.alias_info for value in schema.returns)


def _is_view(op: OpOverload) -> bool:
    first = schema_of(op).arguments[:1]
    return any(value.alias_info and not value.alias_info.is_write for value in first)


def is_flow(op: Any) -> bool:
    """Return True if an op calls graphs in a way that ExecuTorch knows, as `cond` does."""
    return isinstance(op, HigherOrderOperator) and op.__name__ in _FLOWS


@cache
def own_pieces(op: Any) -> Callable[..., Any] | None:
    """Return how an op of another library is written in torch, if it has no form for a kernel.

    torch keeps such an op whole, as torchao wants of its quantisers; a backend may take it so.
    """
    if not isinstance(op, OpOverload) or op.namespace in ("aten", "prims"):
        return None
    if any(name.endswith("out") for name in op.overloadpacket.overloads()):
        return None
    table = torch.export.default_decompositions()
    # The table's `get` is that of dict, which doesn't find entries made on demand.
    return table[op] if op in table else None  # noqa: SIM401


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
