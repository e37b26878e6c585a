"""Norms of float32, written with XNNPACK's means; ExecuTorch's kernels take a number at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import optimization_hint

from etdev.graph import aten_op
from etdev_cpu.layers import as_image, dtypes, shape_of

aten = torch.ops.aten
_Normed = tuple[Tensor, Tensor, Tensor]
# ExecuTorch has a vectorised kernel for layer norms of as many values: its kSmallNThreshold.
_VECTORISED = 256
# With fewer values ExecuTorch's kernels take less time than ten ops of a delegate.
_LEAST = 2048


def as_means(node: Node) -> Callable[..., _Normed] | None:
    """Return how a norm is written with means, where that is faster than its kernel.

    A mean is subtracted before the squares are summed, so that a large one does no harm. Of a
    dynamic size the example counts.
    """
    op: Any = aten_op(node.target)
    if op not in _FORMULAS or dtypes([node]) != {torch.float32}:
        return None
    formula, applies = _FORMULAS[op]
    count = math.prod(optimization_hint(size, _LEAST) for size in shape_of(node))
    return formula if count >= _LEAST and applies(node) else None


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> _Normed:
    """Normalise rows as images of one row and one channel for each."""
    rows = x.reshape(1, -1, 1, math.prod(shape))
    apart, mean = _centred(rows)
    scale = torch.rsqrt(_mean(apart * apart) + eps)
    y = _shifted((apart * scale).reshape(x.shape), weight, bias)
    kept = [*x.shape[: x.dim() - len(shape)], *[1] * len(shape)]
    return y, mean.reshape(kept), scale.reshape(kept)


def _group_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, *sizes: Any) -> _Normed:
    """Normalise groups of channels; each channel is centred alone, as XNNPACK has such means.

    The variance of a group is the mean of those of its channels and of their means' variance.
    """
    batch, channels, _, groups, eps = sizes
    grouped = (batch, groups, 1, channels // groups)
    apart, mean = _centred(as_image(x))
    offsets, centre = _centred(mean.reshape(grouped))
    variances = _mean(apart * apart).reshape(grouped) + offsets * offsets
    scale = torch.rsqrt(_mean(variances) + eps)
    slopes = scale * (x.new_ones(channels) if weight is None else weight).reshape(1, *grouped[1:])
    start = offsets * slopes
    if bias is not None:
        start = start + bias.reshape(1, *grouped[1:])
    y = apart * slopes.reshape(batch, channels, 1, 1) + start.reshape(batch, channels, 1, 1)
    return y.view(x.shape), centre.reshape(batch, groups), scale.reshape(batch, groups)


def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, _: bool, __: float, eps: float
) -> _Normed:
    """Normalise the channels of one image by their own statistics."""
    channels = x.shape[1]
    image = as_image(x)
    y, mean, scale = _group_norm(image, weight, bias, 1, channels, 0, channels, eps)
    return y.view(x.shape), mean.reshape(-1), scale.reshape(-1)


def _mean(x: Tensor) -> Tensor:
    return x.mean((2, 3), keepdim=True)


def _centred(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pixels of an image without the mean of their channel, and the means."""
    mean = _mean(x)
    return x - mean, mean


def _shifted(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _is_short(norm: Node) -> bool:
    sizes: Any = norm.args[1]
    return bool(math.prod(sizes) < _VECTORISED)


def _is_of_one_image(norm: Node) -> bool:
    return bool(shape_of(norm)[0] == 1)


_FORMULAS: Mapping[Any, tuple[Callable[..., _Normed], Callable[[Node], bool]]] = {
    aten.native_layer_norm.default: (_layer_norm, _is_short),
    aten.native_group_norm.default: (_group_norm, lambda _: True),
    aten._native_batch_norm_legit.no_stats: (_batch_norm, _is_of_one_image),
}
