"""Formulas of ops that reduce what is scattered, and of statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions.sizes import in_range

aten = torch.ops.aten


def _var_mean(
    x: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    dims = list(dim) if dim else list(range(x.dim()))
    # None is one here, as it is everywhere.
    given = 1 if correction is None else correction
    mean = torch.mean(x, dims, keepdim)
    mean = torch.where(_has_followed_infinity(x, dims).reshape(mean.shape), math.nan, mean)
    return torch.var(x, dims, correction=given, keepdim=keepdim), mean


def _has_followed_infinity(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Return True where PyTorch's running mean is NaN because a value follows an infinity."""
    reduced = sorted({axis % x.dim() for axis in dims})
    rest = [axis for axis in range(x.dim()) if axis not in reduced]
    values = x.permute(*rest, *reduced).reshape(*(x.shape[axis] for axis in rest), -1)
    places = torch.arange(values.shape[-1], device=x.device)
    return (torch.isinf(values) & (places < values.shape[-1] - 1)).any(-1)


def variance(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float, keepdim: bool = False
) -> Tensor:
    """Compute a variance with a correction over one, which may exceed the number of values."""
    dims = list(dim) if dim else list(range(x.dim()))
    apart = x - torch.mean(x, dims, keepdim=True)
    # Counted, since nothing compares sizes that are dynamic.
    freedom = torch.sum(torch.ones_like(x), dims, keepdim) - correction
    return torch.sum(apart * apart, dims, keepdim) / torch.clamp(freedom, min=0)


def extreme_of_empty(x: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Tensor:
    """Reduce an empty tensor over dimensions that are not empty; the result is empty."""
    reduced = {axis % x.dim() for axis in dim}
    kept = [1 if axis in reduced else size for axis, size in enumerate(x.shape)]
    shape = [size for axis, size in enumerate(kept) if keepdim or axis not in reduced]
    return torch.zeros(shape, dtype=x.dtype)


def extreme_by_dim(x: Tensor, dim: Sequence[int] = (), keepdim: bool = False, *, op: Any) -> Tensor:
    """Reduce one dimension after another, with a kernel that takes empty tensors."""
    for axis in sorted({axis % x.dim() for axis in dim or range(x.dim())}, reverse=True):
        x, _ = op(x, axis, keepdim)
    return x


def place_of_extreme(
    x: Tensor, dim: int | None = None, keepdim: bool = False, *, op: Any
) -> Tensor:
    """Reduce all values with the kernel that refuses an empty tensor; the other one aborts."""
    place: Tensor = op(x.reshape(-1), 0)
    return place.reshape([1] * x.dim()) if keepdim else place


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Every place compared with every index, since no kernel reduces what it scatters."""
    if x.dim() == 0:
        whole = scatter_reduce(
            x.reshape(1), 0, index.reshape(1), source.reshape(1), reduce, include_self=include_self
        )
        return whole.reshape(())
    dim %= x.dim()
    beside: list[tuple[int, Tensor]] = []
    for axis in range(x.dim()):
        size = index.shape[axis]
        source = source.narrow(axis, 0, size)
        if axis != dim and x.shape[axis] != size:
            # Where no index reaches, everything stays as it is.
            beside.append((axis, x.narrow(axis, size, x.shape[axis] - size)))
            x = x.narrow(axis, 0, size)
    result = _scattered(x, dim, index, source, reduce, include_self)
    for axis, rest in reversed(beside):
        result = torch.cat([result, rest], axis)
    return result


def _scattered(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool
) -> Tensor:
    places = torch.arange(x.shape[dim], device=x.device)
    # Out of range, it would hit nothing.
    index = in_range(index, x.shape[dim])
    hits = index.movedim(dim, -1).unsqueeze(-1) == places
    start, given = x.movedim(dim, -1), source.movedim(dim, -1).unsqueeze(-1)
    neutral = _neutral(reduce, x.dtype)
    if not include_self:
        start = torch.where(hits.any(-2), torch.full((), neutral, dtype=x.dtype), start)
    values = torch.where(hits, given, torch.full((), neutral, dtype=x.dtype))
    if reduce == "amax":
        result = torch.maximum(start, torch.max(values, -2)[0])
    elif reduce == "amin":
        result = torch.minimum(start, torch.min(values, -2)[0])
    elif reduce == "prod":
        result = start * torch.prod(values, -2, dtype=x.dtype)
    else:
        result = start + torch.sum(values, -2, dtype=x.dtype)
    if reduce == "mean":
        count = hits.to(torch.int64).sum(-2) + int(include_self)
        count = torch.clamp(count, min=1).to(x.dtype)
        rounding = None if x.dtype.is_floating_point else "floor"
        result = torch.div(result, count, rounding_mode=rounding)
    return result.movedim(-1, dim)


def _neutral(reduce: str, dtype: torch.dtype) -> Any:
    """Return the neutral element of a reduction."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype == torch.bool:
        return reduce == "amin"
    if dtype.is_floating_point:
        return math.inf if reduce == "amin" else -math.inf
    return torch.iinfo(dtype).max if reduce == "amin" else torch.iinfo(dtype).min


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if x.dim() == 0:
        row, given = x.reshape(1), source.reshape(-1)
        whole = _index_reduce(row, 0, index.reshape(-1), given, reduce, include_self=include_self)
        return whole.reshape(())
    shape = [1] * x.dim()
    shape[dim] = -1
    spread = index.reshape(shape).expand(source.shape)
    return scatter_reduce(x, dim, spread, source, reduce, include_self=include_self)


def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    whole = not (x.dtype.is_floating_point or x.dtype.is_complex)
    result = dtype or (torch.int64 if whole else x.dtype)
    # Halves are multiplied in float32, as in PyTorch.
    wide = torch.float32 if result in (torch.float16, torch.bfloat16) else result
    if x.dim() == 0:
        return x.to(result, copy=True)
    row = x.to(wide).movedim(dim, -1).unsqueeze(-2)
    places = torch.arange(x.shape[dim], device=x.device)
    earlier = places.unsqueeze(0) <= places.unsqueeze(1)
    factors = torch.where(earlier, row, torch.ones((), dtype=wide))
    return torch.prod(factors, -1, dtype=wide).movedim(-1, dim).to(result)


def _scatter(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Tensor:
    if not isinstance(source, Tensor):
        source = torch.full(index.shape, source, dtype=x.dtype)
    names = {"add": "sum", "multiply": "prod"}
    return scatter_reduce(x, dim, index, source, names[reduce], include_self=True)


def mean_of_rows(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    """Return means over the last dimension as means of images, which backends have."""
    means = x.reshape(1, -1, 1, x.shape[-1]).mean((2, 3), keepdim=True)
    return means.reshape((*x.shape[:-1], *([1] if keepdim else [])))


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten.var_mean.correction: _var_mean,
    aten.index_reduce.default: _index_reduce,
    aten.cumprod.default: _cumprod,
    aten._is_all_true.default: torch.all,
    aten._is_any_true.default: torch.any,
    aten.scatter.reduce: _scatter,
    aten.scatter.value_reduce: _scatter,
}
