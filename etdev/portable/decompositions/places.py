"""Formulas of ops that write to some places of a tensor, or find places among boundaries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions.sizes import fixed, unless

aten = torch.ops.aten


def _diagonal_scatter(
    x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    moved = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    row = torch.arange(rows, device=x.device).unsqueeze(1)
    column = torch.arange(columns, device=x.device).unsqueeze(0)
    square = torch.diag_embed(source, offset)[..., :rows, :columns]
    missing = (columns - square.shape[-1], rows - square.shape[-2])
    spread = torch.nn.functional.pad(square, (0, missing[0], 0, missing[1]))
    return torch.where(column - row == offset, spread, moved).movedim((-2, -1), (dim1, dim2))


def _as_strided_scatter(
    x: Tensor,
    source: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """Return places in memory as places in a contiguous flat tensor."""
    if not x.is_contiguous() or x.storage_offset():
        raise NotImplementedError("another order in memory")
    places = torch.full((), fixed(storage_offset or 0), dtype=torch.int64)
    for length, step in zip(size, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(fixed(length)) * fixed(step)
    flat = x.reshape(-1).index_put([places.reshape(-1)], source.reshape(-1))
    return flat.view(x.shape)


def _resize(x: Tensor, size: Sequence[int], *, memory_format: Any = None) -> Tensor:
    """Take the first elements in memory; what lies behind the last one is undefined."""
    count = math.prod(map(fixed, size))
    if not x.is_contiguous() or memory_format not in (None, torch.contiguous_format):
        raise NotImplementedError("another order in memory")
    if count > fixed(x.numel()):
        raise NotImplementedError("more elements than there are")
    return x.reshape(-1).narrow(0, 0, count).reshape(size)


def _masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """Index by a mask; torch takes the size of `x` for the largest one of the result."""
    return aten.index.Tensor(x, [mask.expand(x.shape)])


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


def _repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """Return each place as often as it is repeated, by the places where the next ones begin."""
    ends = repeats.to(torch.int64).cumsum(0)
    count = repeats.sum().item() if output_size is None else output_size
    torch._check(count >= 0)  # type: ignore[no-untyped-call]
    place = torch.arange(count, device=repeats.device).unsqueeze(1)
    return (ends <= place).to(torch.int64).sum(1).to(repeats.dtype)


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
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.as_strided_scatter.default: _as_strided_scatter,
    aten.resize.default: _resize,
    aten.masked_select.default: _masked_select,
    aten.searchsorted.Tensor: _searchsorted,
    aten.searchsorted.Scalar: _searchsorted_scalar,
    aten.bucketize.Tensor: _bucketize,
    aten.bucketize.Scalar: _bucketize_scalar,
    aten.repeat_interleave.Tensor: _repeat_interleave,
    aten.histc.default: _histc,
}
