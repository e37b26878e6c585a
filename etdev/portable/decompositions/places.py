"""Formulas of ops that write to some places of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions.sizes import fixed

aten = torch.ops.aten


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


def _as_strided_scatter(
    x: Tensor,
    source: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """Return places in memory as places in a contiguous flat tensor."""
    if not x.is_contiguous() or x.storage_offset():
        raise NotImplementedError("another order in memory")
    places = torch.full((), fixed(storage_offset or 0), dtype=torch.int64)
    for length, step in zip(size, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(fixed(length)) * fixed(step)
    flat = x.reshape(-1).index_put([places.reshape(-1)], source.reshape(-1))
    return flat.view(x.shape)


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.as_strided_scatter.default: _as_strided_scatter,
}
