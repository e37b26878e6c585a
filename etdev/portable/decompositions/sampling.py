"""Formulas of ops that sample images and volumes between their pixels, or outside of them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions.sizes import fixed

aten = torch.ops.aten
_BILINEAR, _BICUBIC = 0, 2
_ZEROS, _REFLECTION = 0, 2
# Farther away, the kernel's conversion of places to integers is undefined.
_FAR = 1e9
# Voxels along one dimension, and their weights.
_Weighted = tuple[Tensor, Tensor]


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
    """Upsample float64; no op rounds integers as PyTorch does, once in each dimension."""
    if not x.dtype.is_floating_point:
        raise NotImplementedError("of integers")
    return linear(x, *options)


def grid_sampler_2d(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    """Sample at places that may be NaN, infinite or far away, which the kernel misreads.

    Args:
        x: Images, (N, channels, height, width).
        grid: Places, (N, rows, columns, 2).
        mode: 0 bilinear, 1 nearest, 2 bicubic.
        padding: 0 zeros, 1 border, 2 reflection.
        corners: Whether -1 and 1 are the middles of the outermost pixels.
    """
    if mode == _BICUBIC:
        grid = torch.where(torch.isinf(grid), grid, torch.clamp(grid, -_FAR, _FAR))
    elif padding != _ZEROS:
        nowhere = torch.isnan(grid)
        if padding == _REFLECTION:
            nowhere = nowhere | (torch.abs(grid) > _FAR)
        # PyTorch ends up at the first pixel then.
        grid = torch.where(nowhere, -1.0, grid)
    result: Tensor = aten.grid_sampler_2d.default(x, grid, mode, padding, corners)
    if mode == _BILINEAR and padding == _ZEROS:
        return result + _zero_or_nan(x, grid, corners).unsqueeze(1)
    return result


def _zero_or_nan(x: Tensor, grid: Tensor, corners: bool) -> Tensor:
    """Return zero where a place is a finite number of pixels away, and NaN elsewhere."""
    width, height = (_scale(size, corners) for size in (x.shape[-1], x.shape[-2]))
    across, down = grid.select(-1, 0) + 1, grid.select(-1, 1) + 1
    return across * width * 0.0 + down * height * 0.0


def _scale(size: Any, corners: bool) -> float:
    """Return the pixels of a unit of the grid, if the size is known."""
    return (size - corners) / 2 if isinstance(size, int) else 1.0


def _antialiased(
    filters: tuple[int, Callable[[Tensor], Tensor]],
    x: Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    """Resample images, (N, channels, height, width), in one dimension after the other."""
    if not x.dtype.is_floating_point:
        raise NotImplementedError("of integers, which PyTorch rounds in each dimension")
    if output_size[1] == 1 != output_size[0]:
        raise NotImplementedError("of one column, whose rows PyTorch makes all alike")
    for dim, factor in ((3, scales_w), (2, scales_h)):
        size, length = fixed(x.shape[dim]), fixed(output_size[dim - 2])
        if size == length:
            continue
        scale = 1 / factor if factor else size / length
        if align_corners:
            scale = (size - 1) / (length - 1) if length > 1 else 0.0
        x = _resampled(x, dim, length, scale, *filters)
    return x.clone()


def _resampled(
    x: Tensor, dim: int, length: int, scale: float, reach: int, weigh: Callable[[Tensor], Tensor]
) -> Tensor:
    """Means of the pixels around each place, by weights that are wider the smaller the image."""
    wide, size = max(scale, 1.0), x.shape[dim]
    shape = [length if axis == dim else 1 for axis in range(x.dim())]
    middle = (torch.arange(length, dtype=x.dtype, device=x.device) + 0.5) * scale
    first = torch.clamp(torch.floor(middle - reach * wide + 0.5), min=0)
    end = torch.clamp(torch.floor(middle + reach * wide + 0.5), max=size)
    total, weights = torch.zeros((), dtype=x.dtype), torch.zeros((), dtype=x.dtype)
    for tap in range(math.ceil(2 * reach * wide) + 1):
        place = first + tap
        inside = place < end
        weight = torch.where(inside, weigh(((place - middle + 0.5) * (1 / wide)).abs()), 0.0)
        pixels = torch.index_select(x, dim, torch.clamp(place, max=size - 1).to(torch.int64))
        # Not only a product, since a NaN or infinity outside would be in it.
        part = torch.where(inside.reshape(shape), pixels * weight.reshape(shape), 0.0)
        total, weights = total + part, weights + weight
    return total / weights.reshape(shape)


def _cubic(distance: Tensor) -> Tensor:
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = -0.5 * (((distance - 5) * distance + 8) * distance - 4)
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))


antialiased = functools.partial(_antialiased, (1, lambda distance: (1 - distance).clamp(min=0)))


def _grid_sampler_3d(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    """Sum the voxels next to each place, or take the nearest ones.

    Args:
        x: Volumes, (N, channels, depth, height, width).
        grid: Places, (N, slices, rows, columns, 3); the first coordinate goes along the width.
        mode: 0 trilinear, 1 nearest.
        padding: 0 zeros, 1 border, 2 reflection.
        corners: Whether -1 and 1 are the middles of the outermost voxels.
    """
    sizes = [fixed(size) for size in reversed(x.shape[2:])]
    flat = grid.reshape(grid.shape[0], -1, 3)
    places = [
        _padded(flat.select(-1, axis), size, padding, corners) for axis, size in enumerate(sizes)
    ]
    near = _neighbours if mode == _BILINEAR else _nearest
    result = None
    for corner in itertools.product(*map(near, reversed(places))):
        part = _voxels(x, corner[::-1], sizes)
        result = part if result is None else result + part
    assert result is not None
    return result.reshape(*x.shape[:2], *grid.shape[1:4])


def _padded(place: Tensor, size: int, padding: int, corners: bool) -> Tensor:
    """Return a place in voxels along one dimension; the last voxel where PyTorch has none."""
    place = (place + 1) / 2 * (size - 1) if corners else ((place + 1) * size - 1) / 2
    if padding == _ZEROS:
        return place
    if padding == _REFLECTION:
        first, span = (0.0, size - 1) if corners else (-0.5, size)
        place = _reflected(place - first, float(span)) + first
    return torch.where(torch.isnan(place), size - 1.0, torch.clamp(place, 0, size - 1))


def _reflected(distance: Tensor, span: float) -> Tensor:
    if span == 0:
        return torch.zeros_like(distance)
    rest = torch.fmod(distance.abs(), 2 * span)
    return torch.where(rest > span, 2 * span - rest, rest)


def _neighbours(place: Tensor) -> list[_Weighted]:
    """Return the voxels before and after a place."""
    before = torch.floor(place)
    return [(before, before + 1 - place), (before + 1, place - before)]


def _nearest(place: Tensor) -> list[_Weighted]:
    nearest = torch.round(place)
    return [(nearest, torch.ones_like(place))]


def _voxels(x: Tensor, corner: Sequence[_Weighted], sizes: Sequence[int]) -> Tensor:
    """Return a corner's part of the result, (N, channels, places); 0 outside of the volume."""
    insides, steps, stride = [], [], 1
    for (place, _), size in zip(corner, sizes, strict=True):
        inside = (place >= 0) & (place < size)
        insides.append(inside)
        steps.append(torch.where(inside, place, 0.0).to(torch.int64) * stride)
        stride *= size
    index = steps[0] + steps[1] + steps[2]
    weight = corner[0][1] * corner[1][1] * corner[2][1]
    inside = insides[0] & insides[1] & insides[2]
    voxels = x.reshape(*x.shape[:2], stride)
    value = torch.gather(voxels, 2, index.unsqueeze(1).expand(-1, x.shape[1], -1))
    return torch.where(inside.unsqueeze(1), value * weight.unsqueeze(1), 0.0)


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten._upsample_bicubic2d_aa.default: functools.partial(_antialiased, (2, _cubic)),
    aten.grid_sampler_3d.default: _grid_sampler_3d,
}
