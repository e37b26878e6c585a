"""Copies, pairs of views, masks, and arithmetic with a number, each replaced by a simpler op."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch.fx import Node

from etdev.edge.simplify.folding import Folding, Simpler, is_plain, is_static, looks_like
from etdev.graph.nodes import op_name, pieces_of
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
_AND = ("aten.bitwise_and.Tensor", "aten.logical_and.default")
_NOT = ("aten.logical_not.default", "aten.bitwise_not.default")
_PERMUTE, _VIEW = "aten.permute_copy.default", "aten.view_copy.default"
# A view of them is a view of their input.
_RESHAPES = (_VIEW, *(f"aten.{name}" for name in ("unsqueeze_copy.default", "squeeze_copy.dims")))


def source_of(node: Node, folding: Folding) -> Node | None:
    """Return the input that a node copies element by element, in the same layout, or None."""
    source: Any = node.args[0] if node.args else None
    if not isinstance(source, Node) or not looks_like(source.meta.get("val"), node.meta["val"]):
        return None
    name = op_name(node)
    if op_name(source) in pieces_of(source):
        # A plugin wrote an op by the same op; a view may restore the shape that its kernel forgets.
        return None
    if name in _COPIES or (name == _PERMUTE and _order(node) == sorted(_order(node))):
        return source
    return None


def copied(node: Node, folding: Folding) -> Node | None:
    """Return what `source_of` does, or the value that a node copies over all of another one."""
    source: Any = node.args[1] if op_name(node) == "aten.copy.default" else None
    if isinstance(source, Node) and looks_like(source.meta.get("val"), node.meta["val"]):
        return source
    return source_of(node, folding)


def merged(node: Node, folding: Folding) -> Simpler | None:
    """Return a permutation of a permutation, or a view of a view, as one op on the inner input."""
    inner = node.args[0] if node.args else None
    name = op_name(node)
    if name not in (_PERMUTE, _VIEW) or not isinstance(inner, Node):
        return None
    known = _RESHAPES if name == _VIEW else (name,)
    if not is_plain(inner) or op_name(inner) not in known or len(inner.users) > 1:
        return None
    source: Any = inner.args[0]
    values = [each.meta.get("val") for each in (source, inner, node)]
    if not all(value is not None and value.is_contiguous() for value in values):
        return None
    if name == _VIEW:
        return node.target, (source, node.args[1])
    order = _order(inner)
    return node.target, (source, [order[dim] for dim in _order(node)])


def reshaped(node: Node, folding: Folding) -> Simpler | None:
    """Return a permutation that moves sizes of 1 alone as a view, which costs nothing."""
    if op_name(node) != _PERMUTE or not node.meta["val"].dim() or not is_static(node.meta["val"]):
        return None
    source: Any = node.args[0]
    sizes, order = source.meta["val"].shape, _order(node)
    moved = [dim for dim in order if sizes[dim] != 1]
    values = (source.meta["val"], node.meta["val"])
    if moved != sorted(moved) or not all(value.is_contiguous() for value in values):
        return None
    return edge_ops.edge.aten.view_copy.default, (source, [sizes[dim] for dim in order])


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
    if rest or node.kwargs or not _fits(number, value.dtype):
        return None
    constant = folding.constant(torch.full((1,), number, dtype=torch.float32), node)
    return getattr(edge_ops.edge.aten, packet).Tensor, (source, constant)


def mask(node: Node, folding: Folding) -> Simpler | None:
    """Return a simpler form of a logic op or a `where`, as attention has them, or None."""
    name = op_name(node)
    if name in _AND:
        return _true(node, folding)
    if name in _NOT:
        inner: Any = node.args[0]
        # Unlike other comparisons, it has an opposite for a NaN, too.
        if op_name(inner) == "aten.eq.Scalar" and len(inner.users) == 1:
            return edge_ops.edge.aten.ne.Scalar, inner.args
        return None
    if name != "aten.where.self":
        return None
    args = _unfilled(node, _without_not(*node.args), folding)
    return None if args == node.args else (node.target, args)


def _true(node: Node, folding: Folding) -> Simpler | None:
    """Simplify `x and True`."""
    for operand, other in (node.args[:2], node.args[1::-1]):
        value = folding.value(operand)
        if not _is_bool(other) or value is None or value.dtype != torch.bool or not value.all():
            continue
        if looks_like(other.meta["val"], node.meta["val"]):
            return other
        if is_static(node.meta["val"]) and node.meta["val"].is_contiguous():
            return edge_ops.edge.aten.expand_copy.default, (other, list(node.meta["val"].shape))
    return None


def _without_not(condition: object, chosen: object, other: object) -> tuple[object, ...]:
    if isinstance(condition, Node) and op_name(condition) in _NOT and len(condition.users) == 1:
        source = condition.args[0]
        if _is_bool(source):
            return source, other, chosen
    return condition, chosen, other


def _unfilled(node: Node, given: tuple[object, ...], folding: Folding) -> tuple[object, ...]:
    """Replace a choice filled with one number by that number, if the other gives the sizes."""
    args = list(given)
    for index in (1, 2):
        choice, other = args[index], args[3 - index]
        if not isinstance(choice, Node) or op_name(choice) != "aten.full_like.default":
            continue
        number, value = choice.args[1], node.meta["val"]
        alike = isinstance(other, Node) and looks_like(other.meta["val"], value)
        # Kernels refuse tensors of different layouts, and a single number has only one.
        plain = value.is_contiguous() and value.dtype == choice.meta["val"].dtype
        if len(choice.users) == 1 and alike and plain and _fits(number, value.dtype):
            args[index] = folding.constant(torch.full((), number, dtype=value.dtype), choice)
            break
    return tuple(args)


def _fits(number: object, dtype: torch.dtype) -> TypeGuard[int | float]:
    """Return True if a dtype is of floats and has a number; kernels differ about larger ones."""
    if not dtype.is_floating_point or isinstance(number, bool):
        return False
    return isinstance(number, int | float) and not torch.finfo(dtype).max < abs(number) < math.inf


def _is_bool(node: object) -> TypeGuard[Node]:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool
