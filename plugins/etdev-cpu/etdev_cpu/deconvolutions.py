"""Strided transposed convolutions, written as plain ones whose outputs are put side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from etdev_cpu.layers import shape_of

# Channels that XNNPACK's layers compute together, on most processors.
_TILE = 16


def is_faster_as_plain(layer: Node) -> bool:
    """Return True for a strided transposed convolution that is exact and faster as a plain one.

    Each output then has the same number of taps: a tap of zero would make NaN of infinities. With
    few outputs XNNPACK's transposed convolution takes up to 15 times as long; with many it is
    faster if there are fewer inputs than outputs. See benchmarks/deconvolution.py.
    """
    weight: Any = layer.args[1]
    given: Any = layer.args[3:]
    stride, padding, dilation, transposed, more, groups = given
    inputs, outputs, *sizes = shape_of(weight)
    plain = transposed and groups == 1 and set(dilation) == {1} and weight.op == "placeholder"
    if not plain or max(stride) == 1 or len(sizes) > 2:
        return False
    whole = all(size % step == 0 for size, step in zip(sizes, stride, strict=True))
    pays = outputs < _TILE or inputs >= outputs
    return whole and pays and all(m <= p for m, p in zip(more, padding, strict=True))


def as_plain(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], *options: Any
) -> Tensor:
    """Convolve, with the outputs of a stride as channels, and put these channels side by side."""
    padding, more, channels = options[0], options[3], weight.shape[1]
    # The last taps come first. Flipped first, since views of weights are not computed ahead.
    turned = weight.flip([*range(2, weight.dim())])
    series = x.dim() == 3
    if series:
        # An image of one row.
        x, turned = x.view(x.shape[0], x.shape[1], 1, x.shape[2]), turned.unsqueeze(2)
        stride, padding, more = [1, *stride], [0, *padding], [0, *more]
    high, wide = stride
    taps = [size // step for size, step in zip(turned.shape[2:], stride, strict=True)]
    turned = turned.view(-1, channels, taps[0], high, taps[1], wide).flip([3, 5])
    turned = turned.permute(1, 3, 5, 0, 2, 4).reshape(channels * high * wide, -1, *taps)
    if bias is not None:
        bias = bias.unsqueeze(1).expand(channels, high * wide).reshape(-1)
    plain = ([1, 1], [tap - 1 for tap in taps], [1, 1], False, [0, 0], 1)
    y: Tensor = torch.ops.aten.convolution.default(x, turned, bias, *plain)
    sizes = [size * step for size, step in zip(y.shape[2:], stride, strict=True)]
    y = y.view(y.shape[0], channels, high, wide, *y.shape[2:]).permute(0, 1, 4, 2, 5, 3)
    y = y.reshape(y.shape[0], channels, *sizes)
    for dim, (cut, added, size) in enumerate(zip(padding, more, sizes, strict=True), 2):
        y = y.narrow(dim, cut, size - 2 * cut + added) if cut or added else y
    return y.view(y.shape[0], channels, y.shape[3]) if series else y
