"""Formulas of ops that find places among boundaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions.refusals import unless

aten = torch.ops.aten


def _searchsorted(
    boundaries: Tensor,
    x: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    if sorter is not None:
        boundaries = torch.gather(boundaries, -1, sorter)
    right = right or side == "right"
    edges = boundaries if boundaries.dim() == 1 else boundaries.unsqueeze(-2)
    value = x.unsqueeze(-1)
    below = edges <= value if right else edges < value
    if value.dtype.is_floating_point:
        # NaN is sorted last: all boundaries are below it, and it is below no number.
        below = below | torch.isnan(value)
    return below.to(torch.int64).sum(-1).to(torch.int32 if out_int32 else torch.int64)


def _searchsorted_scalar(boundaries: Tensor, x: Any, **options: Any) -> Tensor:
    return _searchsorted(boundaries, torch.scalar_tensor(x, dtype=boundaries.dtype), **options)


def _bucketize(
    x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    return _searchsorted(boundaries, x, out_int32=out_int32, right=right)


def _bucketize_scalar(x: Any, boundaries: Tensor, **options: Any) -> Tensor:
    return _searchsorted_scalar(boundaries, x, **options)


def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    flat = x.reshape(-1)
    if min == max == 0:
        low, high = flat.amin(), flat.amax()
    else:
        low, high = (torch.full((), end, dtype=x.dtype, device=x.device) for end in (min, max))
    endless = torch.logical_not(torch.isfinite(low) & torch.isfinite(high))
    single = low == high
    low, high = torch.where(single, low - 1, low), torch.where(single, high + 1, high)
    place = torch.floor((flat - low) / (high - low) * bins)
    place = torch.where(flat == high, float(bins - 1), place)
    inside = (flat >= low) & (flat <= high)
    places = torch.arange(bins, device=x.device, dtype=x.dtype).unsqueeze(1)
    counted = (place == places) & inside
    return unless(endless, counted.to(torch.int64).sum(1).to(x.dtype))


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten.searchsorted.Tensor: _searchsorted,
    aten.searchsorted.Scalar: _searchsorted_scalar,
    aten.bucketize.Tensor: _bucketize,
    aten.bucketize.Scalar: _bucketize_scalar,
    aten.histc.default: _histc,
}
