"""Masks with a known outcome, or with more ops than they need."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from etdev.edge.simplify.folding import Folding
from etdev.edge.simplify.values import Simpler, is_plain, is_static, looks_like, same_sizes
from etdev.graph.nodes import op_name
from etdev.upstream.operators import edge_ops

_AND = ("aten.bitwise_and.Tensor", "aten.logical_and.default")
_OR = ("aten.bitwise_or.Tensor", "aten.logical_or.default")
_NOT = ("aten.logical_not.default", "aten.bitwise_not.default")
_WHERE = "aten.where.self"
# Only these are each other's opposite for a NaN, too.
_OPPOSITE = {"aten.eq.Scalar": "ne.Scalar", "aten.eq.Tensor": "ne.Tensor"} | {
    "aten.ne.Scalar": "eq.Scalar",
    "aten.ne.Tensor": "eq.Tensor",
}
_FULL = ("aten.full_like.default", "aten.zeros_like.default", "aten.ones_like.default")


def simpler(node: Node, folding: Folding) -> Simpler | None:
    """Return a simpler form of a logic op or a `where`, or None."""
    name = op_name(node)
    if name in _AND or name in _OR:
        return _neutral(node, folding, name in _AND)
    if name in _NOT:
        return _negated(node)
    if name == _WHERE:
        return _chosen(node, folding)
    return None


def _neutral(node: Node, folding: Folding, neutral: bool) -> Simpler | None:
    """Simplify `x and True` and `x or False`."""
    for operand, other in (node.args[:2], node.args[1::-1]):
        if not isinstance(other, Node) or not _is_bool(other):
            continue
        value = folding.value(operand)
        if value is None or value.dtype != torch.bool or not bool((value == neutral).all()):
            continue
        if looks_like(other.meta["val"], node.meta["val"]):
            return other
        if is_static(node.meta["val"]) and node.meta["val"].is_contiguous():
            return edge_ops.edge.aten.expand_copy.default, (other, list(node.meta["val"].shape))
    return None


def _negated(node: Node) -> Simpler | None:
    """Simplify `not not x` and `not x == y`."""
    inner: Any = node.args[0]
    if not isinstance(inner, Node) or not is_plain(inner) or not _is_bool(inner):
        return None
    name = op_name(inner)
    if name in _NOT:
        source: Any = inner.args[0]
        same = isinstance(source, Node) and looks_like(source.meta.get("val"), node.meta["val"])
        return source if same else None
    if name in _OPPOSITE and len(inner.users) == 1:
        packet, overload = _OPPOSITE[name].split(".")
        return getattr(getattr(edge_ops.edge.aten, packet), overload), inner.args
    return None


def _chosen(node: Node, folding: Folding) -> Simpler | None:
    """Simplify `where` with a known condition, a negated one, or a choice filled with one value."""
    condition, *choices = node.args
    value = folding.value(condition)
    if value is not None and value.dtype == torch.bool:
        for known, choice in zip((True, False), choices, strict=True):
            if not bool((value == known).all()) or not isinstance(choice, Node):
                continue
            if looks_like(choice.meta.get("val"), node.meta["val"]):
                return choice
    args = _unfilled(node, _without_not(*node.args), folding)
    return None if args == node.args else (node.target, args)


def _without_not(condition: Any, chosen: Any, other: Any) -> tuple[Any, ...]:
    if isinstance(condition, Node) and op_name(condition) in _NOT and len(condition.users) == 1:
        source: Any = condition.args[0]
        if isinstance(source, Node) and _is_bool(source):
            return source, other, chosen
    return condition, chosen, other


def _unfilled(node: Node, given: tuple[Any, ...], folding: Folding) -> tuple[Any, ...]:
    """Replace a choice filled with one value by that value, if the result keeps its sizes."""
    args = list(given)
    for index in (1, 2):
        choice, other = args[index], args[3 - index]
        if not isinstance(choice, Node) or op_name(choice) not in _FULL or len(choice.users) > 1:
            continue
        if not isinstance(other, Node) or not _decides(other.meta["val"], choice, node):
            continue
        if (filling := _filling(choice)) is not None:
            args[index] = folding.constant(filling, choice)
            break
    return tuple(args)


def _decides(other: torch.Tensor, choice: Node, node: Node) -> bool:
    """Return True if the other choice alone gives the result its sizes, dtype and layout."""
    values = (other, choice.meta["val"], node.meta["val"])
    return (
        same_sizes(other.shape, node.meta["val"].shape)
        and len({value.dtype for value in values}) == 1
        # Kernels refuse tensors of different layouts, and a single number has only one.
        and all(value.is_contiguous() for value in values)
    )


def _filling(node: Node) -> torch.Tensor | None:
    """Return the value that a node is filled with; None if it is computed or not of its dtype."""
    name = op_name(node)
    fill = node.args[1] if name == "aten.full_like.default" else int("ones" in name)
    if not isinstance(fill, (bool, int, float)):
        return None
    try:
        return torch.full((), fill, dtype=node.meta["val"].dtype)
    except RuntimeError:
        return None


def _is_bool(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool
