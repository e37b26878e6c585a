"""The FLOPs of nodes by torch's own count, and the bytes that they move, at their largest sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils.flop_counter import flop_registry

from etdev.graph.nodes import upper_bound
from etdev.graph.ops import aten_op
from etdev.schema.cost import Workload
from etdev.upstream.operators import base_name
from etdev.upstream.trees import pytree

# ExecuTorch gives a view the memory of its input, and reads a size without its tensor.
_FREE = ("view_copy", "alias_copy", "detach_copy", "sym_size", "sym_numel", "sym_stride")
# They read only as much of an input as they return.
_PARTS = (
    *("embedding", "gather", "index", "index_select", "narrow", "select", "slice", "split"),
    *("split_with_sizes", "unfold"),
)
aten = torch.ops.aten
# Ops that are counted as another one with the same shapes.
_LIKE = {
    aten.linear: aten.mm,
    aten.scaled_dot_product_attention: aten._scaled_dot_product_flash_attention,
}


class CostCounter:
    """Counts the cost of the nodes of one method; each dynamic size is looked up once."""

    def __init__(self) -> None:
        self._bounds: dict[str, int | None] = {}

    def cost(self, node: Node) -> Workload | None:
        """Return the cost of one call of a node; None if nothing bounds one of its sizes."""
        name = base_name(node.target)
        if name in _FREE:
            return Workload()
        sources = [source.meta.get("val") for source in node.all_input_nodes]
        read = [self._bytes(value) for value in pytree.tree_leaves(sources)]
        written = [self._bytes(value) for value in pytree.tree_leaves(node.meta.get("val"))]
        if None in read or None in written:
            return None
        most = sum(size or 0 for size in written)
        parts = name.removesuffix("_copy") in _PARTS
        least = [min(size or 0, most) if parts else size or 0 for size in read]
        inside = [own for branch in _branches(node) for own in map(self.cost, branch) if own]
        return sum(inside, Workload(self._flops(node), most + sum(least)))

    def _flops(self, node: Node) -> int:
        packet: Any = getattr(aten_op(node.target), "overloadpacket", None)
        count: Any = flop_registry.get(_LIKE.get(packet, packet))
        if count is None:
            return 0
        shapes: Any = map_arg(node.args, lambda source: self._shape(source.meta.get("val")))
        if packet is aten.linear:
            *rows, inner = shapes[0]
            shapes = (math.prod(rows), inner), shapes[1][::-1]
        elif packet is aten.scaled_dot_product_attention:
            shapes = (*shapes[:3], 0.0)
        try:
            values = pytree.tree_map(self._shape, node.meta.get("val"))
            return int(count(*shapes, out_val=values))
        # A formula knows fewer kinds of arguments than its op.
        except (AssertionError, IndexError, TypeError, ValueError):
            return 0

    def _shape(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return tuple(self._bound(size) or 0 for size in value.shape)

    def _bytes(self, value: Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return 0
        sizes = [self._bound(size) for size in value.shape]
        known = [size for size in sizes if size is not None]
        return math.prod(known) * value.element_size() if len(known) == len(sizes) else None

    def _bound(self, size: Any) -> int | None:
        if isinstance(size, int):
            return size
        key = str(size)
        if key not in self._bounds:
            self._bounds[key] = upper_bound(size)
        return self._bounds[key]


def _branches(node: Node) -> Iterator[list[Node]]:
    """Yield the nodes of each branch of a control-flow op, which are counted once."""
    for source in node.all_input_nodes if node.op == "call_function" else ():
        owner = node.graph.owning_module
        branch = getattr(owner, str(source.target), None) if source.op == "get_attr" else None
        if isinstance(branch, GraphModule):
            yield [inner for inner in branch.graph.nodes if inner.op == "call_function"]
