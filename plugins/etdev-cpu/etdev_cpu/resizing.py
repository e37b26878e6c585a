"""Bicubic resizing of images, written with linear layers; its usual pieces gather each pixel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.fx import Node

from etdev.graph import aten_op, pieces_of
from etdev_cpu.layers import dtypes, is_layer, shape_of

BICUBIC = torch.ops.aten.upsample_bicubic2d.vec
# The host computes as many weights ahead: 64 KiB.
_MOST_WEIGHTS = 2**14


def as_products(node: Node) -> Callable[..., Tensor] | None:
    """Return how bicubic resizing of float32 and fixed sizes is written with linear layers.

    Each pixel is a sum of all, most times 0, so infinities make NaN of other pixels.
    """
    if aten_op(node.target) is not BICUBIC or dtypes([node]) != {torch.float32}:
        return None
    before, after = shape_of(node.all_input_nodes[0])[2:], shape_of(node)[2:]
    fixed = all(isinstance(size, int) for size in (*before, *after))
    weights = (old * new for old, new in zip(before, after, strict=True))
    return _resized if fixed and sum(weights) <= _MOST_WEIGHTS else None


def is_of_resizing(node: Node) -> bool:
    """Return True for a layer that resizing was written with."""
    return is_layer(node) and str(BICUBIC) in pieces_of(node)


def _resized(
    x: Tensor,
    sizes: Sequence[int] | None,
    align_corners: bool,
    factors: Sequence[float] | None = None,
) -> Tensor:
    """Resize columns, then rows; the weights are what becomes of each pixel alone."""
    given = factors or (None, None)
    for dim, scale in ((3, given[1]), (2, given[0])):
        size = x.shape[dim]
        new = int(size * scale) if sizes is None and scale else (sizes or ())[dim - 2]
        alone = torch.eye(size)[None, None]
        weight = torch.ops.aten.upsample_bicubic2d.default(
            alone, [new, size], align_corners, scale, None
        )
        rows = x if dim == 3 else x.transpose(2, 3)
        x = torch.nn.functional.linear(rows, weight[0, 0])
    return x.transpose(2, 3)
