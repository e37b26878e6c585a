"""Formulas of sums of a bias and a product; a factor of 0 drops even NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions.halves import DTYPES as HALVES

aten = torch.ops.aten


def addmm(x: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Add a product of two matrices; the kernel reads factors that are multiplied by 0."""
    shape = (left.shape[0], right.shape[1])
    count = left.shape[1]
    return _weighted(x, lambda: torch.mm(left, right), shape, count, beta, alpha)


def _addbmm(
    x: Tensor, left: Tensor, right: Tensor, *, beta: complex = 1, alpha: complex = 1
) -> Tensor:
    def product() -> Tensor:
        # Without the dtype, the sum of int32 is an int64.
        return torch.bmm(left, right).sum(0, dtype=x.dtype)

    count = left.shape[0] * left.shape[2]
    return _weighted(x, product, (left.shape[1], right.shape[2]), count, beta, alpha)


def _addmv(
    x: Tensor, left: Tensor, right: Tensor, *, beta: complex = 1, alpha: complex = 1
) -> Tensor:
    count = left.shape[1]
    return _weighted(x, lambda: torch.mv(left, right), (left.shape[0],), count, beta, alpha)


def _weighted(
    x: Tensor,
    product: Callable[[], Tensor],
    shape: Sequence[int],
    count: int,
    beta: complex,
    alpha: complex,
) -> Tensor:
    """Return a sum of a bias and a product.

    Args:
        x: The bias.
        product: Computes the product.
        shape: The product's.
        count: How many terms each of its elements has.
        beta: Factor of the bias.
        alpha: Factor of the product.
    """
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        beta, alpha = int(beta.real), int(alpha.real)
    half = x.dtype in HALVES
    # Of halves PyTorch reads the product whatever its factor, and adds in float32.
    if count == 0 or (alpha == 0 and not half):
        value = torch.zeros(shape, dtype=x.dtype, device=x.device)
    else:
        value = product().to(torch.float32) if half else product()
        value = value if alpha == 1 else value * alpha
    if beta != 0:
        value = (x if beta == 1 else (x.to(torch.float32) if half else x) * beta) + value
    return value.to(x.dtype)


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten.addbmm.default: _addbmm,
    aten.addmv.default: _addmv,
}
