"""Copies, pairs of views, and arithmetic with a number, each replaced by a simpler op."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from etdev.edge.simplify.folding import Folding
from etdev.edge.simplify.values import Simpler, is_corrected, is_plain, looks_like
from etdev.graph.nodes import op_name
from etdev.upstream.operators import edge_ops

# Ops that return their first input if the result looks like it.
_COPIES = {
    "aten.alias_copy.default",
    "aten.clone.default",
    "aten.detach_copy.default",
    "aten.expand_copy.default",
    "aten.slice_copy.Tensor",
    "aten.view_copy.default",
    "aten._to_copy.default",
    "dim_order_ops._clone_dim_order.default",
    "dim_order_ops._to_dim_order_copy.default",
}
_ARITHMETIC = {f"aten.{name}.Scalar": name for name in ("add", "sub", "mul", "div")}
_PERMUTE, _VIEW = "aten.permute_copy.default", "aten.view_copy.default"


def source_of(node: Node, folding: Folding) -> Node | None:
    """Return the input that a node copies element by element, in the same layout, or None."""
    source: Any = node.args[0] if node.args else None
    if not isinstance(source, Node) or not looks_like(source.meta.get("val"), node.meta["val"]):
        return None
    name = op_name(node)
    if is_corrected(source):
        # A view of it may restore the shape that its kernel forgets.
        return None
    if name in _COPIES or (name == _PERMUTE and _order(node) == sorted(_order(node))):
        return source
    return None


def merged(node: Node, folding: Folding) -> Simpler | None:
    """Return a permutation of a permutation, or a view of a view, as one op on the inner input."""
    inner = node.args[0] if node.args else None
    name = op_name(node)
    if name not in (_PERMUTE, _VIEW) or not isinstance(inner, Node):
        return None
    if not is_plain(inner) or op_name(inner) != name or len(inner.users) > 1:
        return None
    source: Any = inner.args[0]
    values = [each.meta.get("val") for each in (source, inner, node)]
    if not all(value is not None and value.is_contiguous() for value in values):
        return None
    if name == _VIEW:
        return node.target, (source, node.args[1])
    order = _order(inner)
    return node.target, (source, [order[dim] for dim in _order(node)])


def _order(node: Node) -> list[int]:
    dims: Sequence[int] = node.args[1]  # type: ignore[assignment]
    return [dim % len(dims) for dim in dims]


def as_tensor(node: Node, folding: Folding) -> Simpler | None:
    """Return a float32 op with its number as a constant, which backends claim, or None.

    Kernels round the number to float32 either way; in other dtypes they don't.
    """
    packet = _ARITHMETIC.get(op_name(node))
    value = node.meta["val"]
    # Kernels refuse tensors of different layouts, and a single number has only one.
    if packet is None or value.dtype != torch.float32 or not value.is_contiguous():
        return None
    source, number, *rest = node.args
    if not isinstance(source, Node) or not looks_like(source.meta["val"], value) or not value.dim():
        return None
    if rest or node.kwargs or isinstance(number, bool) or not isinstance(number, (int, float)):
        return None
    # A float32 can't hold it, and kernels then compute different results.
    if abs(number) > torch.finfo(torch.float32).max and math.isfinite(number):
        return None
    constant = folding.constant(torch.full((1,), number, dtype=torch.float32), node)
    return getattr(edge_ops.edge.aten, packet).Tensor, (source, constant)
