"""Formulas of ops that sample images between their places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from etdev.edge.formulas.sizes import fixed

aten = torch.ops.aten
_BILINEAR, _NEAREST = 0, 1
_ZEROS = 0


def linear(
    x: Tensor,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None = None,
) -> Tensor:
    """Upsampled by weights of two neighbours, in one dimension after the other.

    torch's decomposition adds a part of their difference, which is NaN if both are infinite, and
    computes float64 in float32.
    """
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    value = x.to(dtype)
    for axis, size in enumerate(x.shape[2:]):
        factor = scale_factors[axis] if scale_factors else None
        length = math.floor(fixed(size) * factor) if factor else fixed((output_size or ())[axis])
        places = torch.arange(length, dtype=dtype, device=x.device)
        if align_corners:
            places = places * ((size - 1) / (length - 1) if length > 1 else 0.0)
        else:
            scale = 1 / factor if factor else size / length
            places = torch.clamp((places + 0.5) * scale - 0.5, min=0)
        before = torch.clamp(torch.floor(places), max=size - 1)
        shape = [length if dim == axis + 2 else 1 for dim in range(x.dim())]
        weight = (places - before).reshape(shape)
        first = before.to(torch.int64)
        second = torch.clamp(first + 1, max=size - 1)
        one, other = (torch.index_select(value, axis + 2, index) for index in (first, second))
        value = one * (1 - weight) + other * weight
    return value.to(x.dtype)


def bilinear(x: Tensor, *options: Any) -> Tensor:
    """Of float64; nothing rounds integers as PyTorch does, once in each dimension."""
    if not x.dtype.is_floating_point:
        raise NotImplementedError("of integers")
    return linear(x, *options)


def grid(x: Tensor, places: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """At places that may be NaN or infinite, which the kernel takes for others than PyTorch."""
    odd = torch.logical_not(torch.isfinite(places))
    if mode == _NEAREST or (mode == _BILINEAR and padding != _ZEROS):
        # The first row or column; what is infinite is at the border that it is beyond.
        first = torch.isnan(places) if padding == 1 else odd
        places = torch.where(first, -1.0, places).to(places.dtype)
        return _sampled(x, places, mode, padding, align_corners)
    inside = torch.where(odd, 0.0, places).to(places.dtype)
    result = _sampled(x, inside, mode, padding, align_corners)
    return torch.where(odd.any(-1).unsqueeze(1), math.nan, result).to(x.dtype)


def _sampled(*args: Any) -> Tensor:
    result: Tensor = aten.grid_sampler_2d.default(*args)
    return result
