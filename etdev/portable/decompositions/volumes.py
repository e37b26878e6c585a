"""Formulas of ops that sample volumes between their voxels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions.sizes import fixed

aten = torch.ops.aten
_BILINEAR = 0
_ZEROS, _REFLECTION = 0, 2
# Voxels along one dimension, and their weights.
_Weighted = tuple[Tensor, Tensor]


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
    aten.grid_sampler_3d.default: _grid_sampler_3d,
}
