"""Formulas of norms that first subtract a value of the row, which changes nothing but the rounding.

The kernels compute a variance from the sum of squares, and lose it beside a large mean. Any value
of a row is about one standard deviation from its mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

aten = torch.ops.aten
_Normed = tuple[Tensor, Tensor, Tensor]


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> _Normed:
    """Normalise the last dimensions."""
    start = _first(x, range(x.dim() - len(shape), x.dim()))
    value, mean, scale = aten.native_layer_norm.default(x - start, shape, weight, bias, eps)
    return value, mean + start, scale


def group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> _Normed:
    """Normalise groups of channels."""
    rows = x.reshape(batch, groups, channels // groups * size)
    start = _first(rows, [2])
    value, mean, scale = aten.native_group_norm.default(
        (rows - start).reshape(x.shape), weight, bias, batch, channels, size, groups, eps
    )
    return value, mean + start.squeeze(2), scale


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> _Normed:
    """Normalise a batch without running statistics."""
    start = _first(x, [0, *range(2, x.dim())])
    value, mean, scale = aten._native_batch_norm_legit.no_stats(
        x - start, weight, bias, training, momentum, eps
    )
    return value, mean + start.reshape(-1), scale


def _first(x: Tensor, dims: Iterable[int]) -> Tensor:
    for dim in dims:
        x = aten.slice.Tensor(x, dim, 0, 1)
    return x
