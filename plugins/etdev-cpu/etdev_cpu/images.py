"""Layers along one or three dimensions and means of images, written as XNNPACK has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from etdev.graph import aten_op
from etdev_cpu.layers import dtypes, shape_of

aten = torch.ops.aten
_CONVOLUTION, _NORM = aten.convolution.default, aten._native_batch_norm_legit_no_training.default
# Batch, channels, height and width.
_IMAGE = 4


def as_images(node: Node) -> Callable[..., Any] | None:
    """Return how a layer or mean that XNNPACK has for images only is written with one of them.

    XNNPACK reshapes a series to an image inside its delegate, which fails for two dynamic sizes. A
    view outside of the delegate costs nothing. XNNPACK has no batch norm of volumes.
    """
    source = node.args[0] if node.args else None
    if aten_op(node.target) not in FORMULAS or not isinstance(source, Node):
        return None
    sizes, formula = shape_of(source), FORMULAS[aten_op(node.target)]
    if formula is _mean:
        return formula if _reduces_images(node, len(sizes)) else None
    series = len(sizes) == 3 and sum(not isinstance(size, int) for size in sizes) > 1
    volumes = len(sizes) == 5 and formula is _norm
    return formula if (series or volumes) and dtypes([node]) == {torch.float32} else None


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    """Convolve series as images of one row."""
    # Each for one dimension more, but for `transposed` and `groups`.
    first = ([1], [0], [1], None, [0], None)
    rows = [old if new is None else [*new, *old] for old, new in zip(options, first, strict=True)]
    result: Tensor = aten.convolution.default(_image(x), weight.unsqueeze(2), bias, *rows)
    return result.view(result.shape[0], result.shape[1], result.shape[3])


def _norm(x: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise series or volumes as images."""
    result, mean, deviation = _NORM(_image(x), *options)
    return result.view(x.shape), mean, deviation


def _mean(x: Tensor, dims: Sequence[int], *_: Any) -> Tensor:
    """Compute means of images, which XNNPACK leaves as images of one value."""
    means: Tensor = aten.mean.dim(x, dims, True)
    return means.view(x.shape[:2])


def _reduces_images(mean: Node, rank: int) -> bool:
    """Return True for means over heights and widths that are given without these dimensions."""
    dims: Any = mean.args[1]
    plain = rank == _IMAGE and not any(mean.args[2:]) and not mean.kwargs
    return plain and {dim % rank for dim in dims} == {2, 3} and dtypes([mean]) == {torch.float32}


def _image(x: Tensor) -> Tensor:
    """View a tensor as images: series in one row, volumes with their slices one above the other."""
    rows = x.shape[2] * x.shape[3] if x.dim() > _IMAGE else 1
    return x.view(x.shape[0], x.shape[1], rows, x.shape[-1])


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    _CONVOLUTION: _convolution,
    _NORM: _norm,
    aten.mean.dim: _mean,
}
