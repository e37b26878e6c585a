"""Layers and pools that XNNPACK lacks, or is slow at, written with layers of images that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from etdev.graph import aten_op
from etdev_cpu.deconvolutions import as_plain, is_faster_as_plain
from etdev_cpu.layers import as_image, dtypes, is_layer, shape_of

aten = torch.ops.aten
_CONVOLUTION, _NORM = aten.convolution.default, aten._native_batch_norm_legit_no_training.default
_FLOATS = {torch.float32, torch.float16}
# Batch, channels, height and width.
_IMAGE = 4


def as_images(node: Node) -> Callable[..., Any] | None:
    """Return how a layer that XNNPACK has for images only, or slowly, is written with another one.

    XNNPACK reshapes a series to an image inside its delegate, which fails for two dynamic sizes. A
    view outside of the delegate costs nothing. XNNPACK has no batch norm of volumes, and not in
    every release one of rows without a layer before it.
    """
    source = node.args[0] if node.args else None
    if aten_op(node.target) not in FORMULAS or not isinstance(source, Node):
        return None
    sizes, formula = shape_of(source), FORMULAS[aten_op(node.target)]
    if formula is _norm and len(sizes) == 2:
        return None if is_layer(source) or not dtypes([node]) <= _FLOATS else formula
    if dtypes([node]) != {torch.float32}:
        return None
    if formula in _CONDITIONS:
        return formula if _CONDITIONS[formula](node) else None
    if formula is _convolution and is_faster_as_plain(node):
        return as_plain
    series = len(sizes) == 3 and sum(not isinstance(size, int) for size in sizes) > 1
    volumes = len(sizes) == 5 and formula is _norm
    return formula if series or volumes else None


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    """Convolve series as images of one row."""
    # Each for one dimension more, but for `transposed` and `groups`.
    first = ([1], [0], [1], None, [0], None)
    rows = [old if new is None else [*new, *old] for old, new in zip(options, first, strict=True)]
    result: Tensor = aten.convolution.default(as_image(x), weight.unsqueeze(2), bias, *rows)
    return result.view(result.shape[0], result.shape[1], result.shape[3])


def _norm(x: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise rows, series or volumes as images."""
    result, mean, deviation = _NORM(as_image(x), *options)
    return result.view(x.shape), mean, deviation


def _mean(x: Tensor, dims: Sequence[int], *_: Any) -> Tensor:
    """Compute means of images, which XNNPACK leaves as images of one value."""
    means: Tensor = aten.mean.dim(x, dims, True)
    return means.view(x.shape[:2])


def _reduces_images(mean: Node) -> bool:
    """Return True for means over heights and widths that are given without these dimensions."""
    dims: Any = mean.args[1]
    plain = not any(mean.args[2:]) and not mean.kwargs
    images = len(shape_of(mean.all_input_nodes[0])) == _IMAGE
    return images and plain and {dim % _IMAGE for dim in dims} == {2, 3}


def _pool(
    x: Tensor, size: Sequence[int], step: Sequence[int], around: Sequence[int], *_: Any
) -> Tensor:
    """Pad before the pool, since XNNPACK doesn't count the padding of a pool of means."""
    rows, columns = (*around, *around)[:2]
    padded = aten.constant_pad_nd.default(x, [columns, columns, rows, rows])
    pooled: Tensor = aten.avg_pool2d.default(padded, size, step)
    return pooled


def _counts_padding(pool: Node) -> bool:
    """Return True for a pool of means of images that counts its padding."""
    given: Any = (*pool.args[3:], *[None] * 4)
    around, up, counts, divisor = given[:4]
    images = len(shape_of(pool)) == _IMAGE and not pool.kwargs
    return images and any(around or ()) and not up and counts is not False and divisor is None


def _softmax(x: Tensor, dim: int, *_: Any) -> Tensor:
    """Compute a softmax over channels as one over the last dimension."""
    rows = x.flatten(2).transpose(1, 2)
    return torch.softmax(rows, -1).transpose(1, 2).reshape(x.shape)


def _is_of_channels(softmax: Node) -> bool:
    """Return True for a softmax over the second of more dimensions."""
    sizes, given = shape_of(softmax), softmax.args[1:]
    return len(sizes) > 2 and given in ((1, False), (1 - len(sizes), False))


def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """Compute a scaled ELU as a multiple of a plain one."""
    inner = x if input_scale == 1 else x * input_scale
    result: Tensor = aten.elu.default(inner, alpha * input_scale) * (scale / input_scale)
    return result


def _celu(x: Tensor, alpha: float = 1) -> Tensor:
    return _elu(x, alpha, 1, 1 / alpha)


def _is_scaled(elu: Node) -> bool:
    return any(scale != 1 for scale in elu.args[2:]) and 0 not in elu.args[2:]


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    _CONVOLUTION: _convolution,
    _NORM: _norm,
    aten.mean.dim: _mean,
    aten.avg_pool2d.default: _pool,
    aten._softmax.default: _softmax,
    aten.elu.default: _elu,
    aten.celu.default: _celu,
}
_CONDITIONS: Mapping[Callable[..., Any], Callable[[Node], bool]] = {
    _mean: _reduces_images,
    _pool: _counts_padding,
    _softmax: _is_of_channels,
    _elu: _is_scaled,
    _celu: lambda node: bool((*node.args, 1)[1]),
}
