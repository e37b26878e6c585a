"""Numbers that ops take for tensors, which ExecuTorch rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.node import map_arg

from etdev.graph.inlining import call
from etdev.graph.rebuild import with_changed
from etdev.schema.quirk import Nodes, Quirk
from etdev.schema.stages import TO_EDGE
from etdev.upstream.operators import OpOverload, schema_of

aten = torch.ops.aten
_CONVERT = aten._to_copy.default


def _rounded(node: Node) -> dict[int, torch.dtype]:
    """Return the positions of numbers that ExecuTorch would round, with an exact dtype for each."""
    beside = {v.dtype for v in _values(node) if isinstance(v, torch.Tensor)}
    exact = ((i, _exact(value, beside) or _divided(node, value)) for i, value in _scalars(node))
    return {index: dtype for index, dtype in exact if dtype}


def _make_tensors(node: Node) -> None:
    """Make numbers tensors of an exact dtype."""
    for index, dtype in _rounded(node).items():
        value = node.args[index]
        known = isinstance(value, float | int)
        op, args = (aten.full, ((), value)) if known else (aten.scalar_tensor, (value,))
        node.update_arg(index, call(node, op.default, *args, dtype=dtype))


def _compute_wide(node: Node) -> None:
    """Compute in the dtype that a number would have, and convert the result."""
    wide = _wide(node)
    given = {source: call(node, _CONVERT, source, dtype=wide) for source in node.all_input_nodes}
    args = map_arg(node.args, given.__getitem__)
    result = call(node, node.target, *args, **node.kwargs)
    # The node itself stays, since it may be a result.
    node.target, node.args = _CONVERT, (result,)
    node.kwargs = {"dtype": node.meta["val"].dtype}


def _wide(node: Node) -> torch.dtype:
    """Return the dtype in which torch computes numbers with tensors without dimensions."""
    numbers = [value for _, value in _scalars(node) if type(value) in (int, float)]
    wide = torch.float32 if any(isinstance(n, float) for n in numbers) else torch.int64
    for value in _values(node):
        assert isinstance(value, torch.Tensor)
        wide = torch.promote_types(wide, value.dtype)
    return wide


def _is_widened(node: Node) -> bool:
    """Return True if a number would change the dtype of tensors without dimensions."""
    result = node.meta.get("val")
    if not isinstance(result, torch.Tensor):
        return False
    values = list(_values(node))
    numbers = [value for _, value in _scalars(node) if type(value) in (int, float)]
    if not numbers or any(not isinstance(v, torch.Tensor) or v.dim() for v in values):
        return False
    # The result of a comparison is not of the dtype in which it is made.
    return result.dtype not in (_wide(node), torch.bool)


def _values(node: Node) -> Iterator[object]:
    return (source.meta.get("val") for source in node.all_input_nodes)


def _scalars(node: Node) -> Iterator[tuple[int, object]]:
    """Yield the arguments that ought to be tensors, by their position."""
    op = node.target
    arguments = schema_of(op).arguments if isinstance(op, OpOverload) else ()
    for index, (argument, value) in enumerate(zip(arguments, node.args, strict=False)):
        if str(argument.type) in ("Tensor", "Optional[Tensor]"):
            yield index, value.meta.get("val") if isinstance(value, Node) else value


def _exact(value: object, beside: set[torch.dtype]) -> torch.dtype | None:
    """Return the dtype that a number needs if ExecuTorch would round it; None otherwise."""
    double = torch.float64 in beside
    if isinstance(value, float):
        return torch.float64 if double and _rounds(value) else None
    if isinstance(value, torch.SymFloat):
        return torch.float64 if double else None
    if isinstance(value, torch.SymInt) and free_unbacked_symbols(value):
        # Beside smaller integers it would make the result larger.
        wide = torch.int64 in beside or any(dtype.is_floating_point for dtype in beside)
        return torch.int64 if wide and not _is_small(value) else None
    return None


def _divided(node: Node, value: object) -> torch.dtype | None:
    """Return the dtype of an integer that divides, or is divided by, smaller ones.

    If a plugin keeps the op whole, ExecuTorch's verifier refuses inputs of several dtypes.
    """
    result = node.meta.get("val")
    if node.target is not aten.floor_divide.default or type(value) is not int:
        return None
    assert isinstance(result, torch.Tensor)
    same = result.dtype == torch.int64 or result.dtype.is_floating_point
    return None if same else result.dtype


def _rounds(value: float) -> bool:
    return not math.isnan(value) and torch.tensor(value).item() != value


def _is_small(value: torch.SymInt) -> bool:
    """Return True if a number always is an int32."""
    bounds = value.node.shape_env.bound_sympy(value.node.expr)
    limits = torch.iinfo(torch.int32)
    return bool(bounds.lower >= limits.min and bounds.upper <= limits.max)


ROUNDED_SCALARS = Quirk(
    name="rounded-scalars",
    stage=TO_EDGE,
    summary="A number that an op takes for a tensor becomes one in float32 or int32, even with "
    "tensors in float64 or int64.",
    upstream="report written 2026-11-27; executorch/exir/passes/scalar_to_tensor_pass.py, "
    "call_operator",
    find=Nodes(only=lambda node: bool(_rounded(node)), branches=True),
    fix=partial(with_changed, change=_make_tensors),
)
WIDENED_SCALARS = Quirk(
    name="widened-scalars",
    stage=TO_EDGE,
    summary="A tensor without dimensions no longer decides the dtype of a result once the number "
    "that it is combined with is a tensor, too.",
    upstream="report written 2026-11-27; executorch/exir/passes/scalar_to_tensor_pass.py, "
    "call_operator",
    find=Nodes(only=_is_widened, branches=True),
    fix=partial(with_changed, change=_compute_wide),
)
QUIRKS = (ROUNDED_SCALARS, WIDENED_SCALARS)
