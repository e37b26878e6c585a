"""Formulas of ops that order values: sorting, and what depends on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions.sizes import fixed, joined

aten = torch.ops.aten


def sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Sort stably, with two calls of topk: of the values, and of what brings ties into order."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    size = x.shape[dim]
    if isinstance(size, int) and size == 0:
        return x.clone(), torch.zeros(x.shape, dtype=torch.int64, device=x.device)
    keys = x.to(torch.uint8) if x.dtype == torch.bool else x
    values, places = torch.topk(keys, size, dim, descending, True)
    # The first value follows a zero, so that a dynamic size may be 0.
    shape = [1 if axis == dim % x.dim() else each for axis, each in enumerate(x.shape)]
    earlier = joined([values.new_zeros(shape), values], dim).narrow(dim, 0, size)
    rises = earlier != values
    if x.dtype.is_floating_point:
        rises = rises & ~(torch.isnan(earlier) & torch.isnan(values))
    runs = torch.cumsum(rises.to(torch.int64), dim)
    order, _ = torch.topk(runs * size + places, size, dim, False, True)
    places = order - runs * size
    return torch.gather(x, dim, places), places


def _stable_sort(
    x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    return sort(x, dim, descending)


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if x.dim() == 0:
        return sort(x)
    values, places = sort(x, dim)
    if keepdim:
        return values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return values.select(dim, k - 1), places.select(dim, k - 1)


def _median_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the lower median, or the first NaN."""
    if x.dim() == 0:
        return sort(x)
    values, places = sort(x, dim)
    last = x.shape[dim] - 1
    middle = torch.full_like(places.narrow(dim, 0, 1), last // 2)
    if x.dtype.is_floating_point:
        nan = torch.isnan(values)
        first = torch.argmax(nan.to(torch.uint8), dim, keepdim=True)
        middle = torch.where(nan.any(dim, keepdim=True), first, middle)
    return _taken(values, places, middle, dim, keepdim)


def _nanmedian_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the lower median of what is a number; NaN if nothing is."""
    if not x.dtype.is_floating_point or x.dim() == 0:
        return _median_dim(x, dim, keepdim)
    values, places = sort(x, dim)
    numbers = torch.logical_not(torch.isnan(x)).to(torch.int64).sum(dim, keepdim=True)
    middle = torch.clamp(torch.div(numbers - 1, 2, rounding_mode="floor"), min=0)
    return _taken(values, places, middle, dim, keepdim)


def _taken(
    values: Tensor, places: Tensor, at: Tensor, dim: int, keepdim: bool
) -> tuple[Tensor, Tensor]:
    value, place = torch.gather(values, dim, at), torch.gather(places, dim, at)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def _median(x: Tensor) -> Tensor:
    return _median_dim(x.reshape(-1), 0)[0]


def _nanmedian(x: Tensor) -> Tensor:
    return _nanmedian_dim(x.reshape(-1), 0)[0]


def _mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the smallest of the most frequent values, and where it is last."""
    if x.dim() == 0:
        return sort(x)
    values, places = sort(x, dim)
    moved = values.movedim(dim, -1)
    same = moved.unsqueeze(-1) == moved.unsqueeze(-2)
    most = torch.argmax(same.to(torch.int64).sum(-1), -1, keepdim=True)
    value = torch.gather(moved, -1, most)
    last = torch.where(moved == value, places.movedim(dim, -1), -1).amax(-1, keepdim=True)
    value, last = value.movedim(-1, dim), last.movedim(-1, dim)
    return (value, last) if keepdim else (value.squeeze(dim), last.squeeze(dim))


def _scanned(
    x: Tensor, dim: int, *, better: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return running best values and their places, in steps of doubled length."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    size = fixed(x.shape[dim])
    shape = [size if axis == dim % x.dim() else 1 for axis in range(x.dim())]
    places = torch.arange(size, device=x.device).reshape(shape).expand(x.shape)
    step = 1
    while step < size:
        earlier, later = x.narrow(dim, 0, size - step), x.narrow(dim, step, size - step)
        wins = better(later, earlier) | _isnan(later)
        best = torch.where(wins, later, earlier)
        place = torch.where(
            wins, places.narrow(dim, step, size - step), places.narrow(dim, 0, size - step)
        )
        x = torch.cat([x.narrow(dim, 0, step), best], dim)
        places = torch.cat([places.narrow(dim, 0, step), place], dim)
        step *= 2
    return x.clone() if size <= 1 else x, places.clone() if size <= 1 else places


def _isnan(x: Tensor) -> Tensor:
    return torch.isnan(x) if x.dtype.is_floating_point else torch.zeros_like(x, dtype=torch.bool)


def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    if x.dim() == 0:
        return x.clone()
    size, step = fixed(x.shape[dim]), 1
    while step < size:
        one, two = x.narrow(dim, step, size - step), x.narrow(dim, 0, size - step)
        large = torch.maximum(one, two)
        # Two infinities have no difference.
        apart = torch.where(one == two, 0.0, -(one - two).abs())
        x = torch.cat([x.narrow(dim, 0, step), large + torch.log1p(torch.exp(apart))], dim)
        step *= 2
    return x.clone() if size <= 1 else x


def _unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    if dim is not None:
        raise NotImplementedError("along a dimension")
    values, inverse, counts = _runs(x.reshape(-1))
    return _wanted(values, inverse.reshape(x.shape), counts, return_inverse, return_counts)


def _unique(
    x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    flat, places = sort(x.reshape(-1))
    values, runs, counts = _runs(flat)
    inverse = torch.scatter(torch.zeros_like(places), 0, places, runs).reshape(x.shape)
    return _wanted(values, inverse, counts, return_inverse, return_counts)


def _wanted(
    values: Tensor, inverse: Tensor, counts: Tensor, return_inverse: bool, return_counts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return results that are not asked for without elements, as PyTorch does."""
    none = torch.zeros(0, dtype=torch.int64, device=values.device)
    return values, inverse if return_inverse else none, counts if return_counts else none


def _runs(flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first value of each run of equal ones, the run of each value, and run lengths."""
    size = flat.shape[0]
    rises = flat.narrow(0, 1, size - 1) != flat.narrow(0, 0, size - 1)
    begins = torch.cat([torch.ones(1, dtype=torch.bool, device=flat.device), rises])
    first = torch.nonzero(begins).select(1, 0)
    runs = torch.cumsum(begins.to(torch.int64), 0) - 1
    # The end of each run is where no later place has the same number.
    counts = torch.zeros_like(runs).scatter_add(0, runs, torch.ones_like(runs))
    return torch.index_select(flat, 0, first), runs, counts.narrow(0, 0, first.shape[0])


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten.sort.stable: _stable_sort,
    aten.kthvalue.default: _kthvalue,
    aten.median.default: _median,
    aten.median.dim: _median_dim,
    aten.nanmedian.default: _nanmedian,
    aten.nanmedian.dim: _nanmedian_dim,
    aten.mode.default: _mode,
    aten.cummax.default: partial(_scanned, better=torch.ge),
    aten.cummin.default: partial(_scanned, better=torch.le),
    aten.logcumsumexp.default: _logcumsumexp,
    aten._unique2.default: _unique,
    aten.unique_consecutive.default: _unique_consecutive,
}
