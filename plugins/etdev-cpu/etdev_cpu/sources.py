"""Matrix products that XNNPACK would take for the linear layer they were written in.

Its matcher and its compiler go by what a node's meta says of the call or module it comes from, and
make a linear layer of all that has the same. That is wrong where a layer came to be anything but
a product with the transpose of its weight: where the transpose is computed already, where a bias is
added later, in `torch.vmap`, or where a hook adds a product of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.passes.utils.source_matcher_utils import SourcePartition, get_source_partitions

from etdev.graph import CALLS, NO_CALL
from etdev_cpu.layers import short
from etdev_cpu.quantisers import is_quantiser

_LAYERS = [torch.nn.Linear, torch.nn.functional.linear]
_PRODUCTS = ("mm", "addmm", "bmm")
_VIEWS = ("view_copy", "unsqueeze_copy", "squeeze_copy")


def hide_sources(graph: Graph) -> dict[str, dict[str, object]]:
    """Hide the source of products that aren't the layer which it names; return their new meta."""
    hidden: dict[str, dict[str, object]] = {n.name: {CALLS: NO_CALL} for n in _misleading(graph)}
    for node in graph.nodes:
        node.meta.update(hidden.get(node.name, {}))
    return hidden


def _misleading(graph: Graph) -> Iterator[Node]:
    groups = get_source_partitions(graph, _LAYERS)
    for group in (group for found in groups.values() for group in found):
        products = [node for node in group.nodes if short(node) in _PRODUCTS]
        if len(products) != 1 or not _is_layer(products[0], group):
            yield from products


def _is_layer(product: Node, group: SourcePartition) -> bool:
    """Return True if a group is a product with a transposed weight, a bias and views."""
    nodes = set(group.nodes)
    if product.kwargs or short(product) == "bmm":
        return False
    given, weight = product.args[-2:]  # type: Any, Any
    op = short(weight)
    transposes = op == "t_copy" or (op == "permute_copy" and list(weight.args[1]) == [1, 0])
    if weight not in nodes or not transposes:
        return False
    before = list(_views_before(given, nodes))
    after = list(_added_and_viewed(product, nodes))
    layer = {product, weight, *before, *after}
    others = [node for node in nodes - layer if node.op == "call_function"]
    source = before[-1].args[0] if before else given
    last = after[-1] if after else product
    whole = all(map(is_quantiser, others)) and group.output_nodes == [last]
    return whole and _shape(last) == [*_shape(source)[:-1], _shape(product)[-1]]


def _views_before(node: Any, nodes: set[Node]) -> Iterator[Node]:
    while node in nodes and short(node) in _VIEWS:
        yield node
        node = node.args[0]


def _added_and_viewed(product: Node, nodes: set[Node]) -> Iterator[Node]:
    """Return a bias that is added right after a product, and what only changes the shape then."""
    node = product
    while len(node.users) == 1:
        (user,) = node.users
        bias = node is product and short(product) == "mm" and short(user) == "add"
        if user not in nodes or user.kwargs or not (bias or short(user) in _VIEWS):
            return
        yield user
        node = user


def _shape(node: Any) -> list[str]:
    # Compared as text, since comparing symbolic sizes would fix them.
    return [str(size) for size in node.meta["val"].shape]
