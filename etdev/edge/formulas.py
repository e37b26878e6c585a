"""Formulas: decompositions that none of torch's tables has, into what portable kernels compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _exp2(x: Tensor) -> Tensor:
    return torch.pow(2.0, x)


def _fmax(x: Tensor, y: Tensor) -> Tensor:
    return _without_nan(x, y, torch.maximum(x, y))


def _fmin(x: Tensor, y: Tensor) -> Tensor:
    return _without_nan(x, y, torch.minimum(x, y))


def _without_nan(x: Tensor, y: Tensor, both: Tensor) -> Tensor:
    """One of two numbers where the other is NaN, else what both give."""
    if not both.dtype.is_floating_point:
        return both
    return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, both))


def _addbmm(
    x: Tensor, left: Tensor, right: Tensor, *, beta: complex = 1, alpha: complex = 1
) -> Tensor:
    # Without the dtype, the sum of int32 is an int64.
    product = torch.bmm(left, right).sum(0, dtype=x.dtype)
    product = product if alpha == 1 else product * alpha
    # Without a beta not even NaN counts.
    return product if beta == 0 else product + beta * x


def _trilinear(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    factors = []
    for factor, dims in ((x, expand1), (y, expand2), (z, expand3)):
        for dim in dims:
            factor = factor.unsqueeze(dim)
        factors.append(factor)
    product = factors[0] * factors[1] * factors[2]
    return product.sum(list(sumdim)) if sumdim else product


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


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten.exp2.default: _exp2,
    aten.fmax.default: _fmax,
    aten.fmin.default: _fmin,
    aten.addbmm.default: _addbmm,
    aten._trilinear.default: _trilinear,
    aten.diagonal_scatter.default: _diagonal_scatter,
}
