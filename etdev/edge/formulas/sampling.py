"""Formulas of samples between pixels, at places that are not there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
_BILINEAR, _BICUBIC = 0, 2
_ZEROS, _REFLECTION = 0, 2
# Farther away, the kernel's conversion of places to integers is undefined.
_FAR = 1e9


def grid_sampler_2d(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    """With places that are NaN, infinite or far away, which the kernel takes for others.

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
        return result + _nothing(x, grid, corners).unsqueeze(1)
    return result


def _nothing(x: Tensor, grid: Tensor, corners: bool) -> Tensor:
    """Zero where a place is a finite number of pixels, and NaN elsewhere."""
    width, height = (_scale(size, corners) for size in (x.shape[-1], x.shape[-2]))
    across, down = grid.select(-1, 0) + 1, grid.select(-1, 1) + 1
    return across * width * 0.0 + down * height * 0.0


def _scale(size: Any, corners: bool) -> float:
    """Pixels for a unit of the grid, if the size is known."""
    return (size - corners) / 2 if isinstance(size, int) else 1.0
