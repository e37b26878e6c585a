"""Formulas of bags of embeddings: rows of a table that are summed, averaged or compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def embedding_bag(
    table: Tensor,
    rows: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the bags, and three results that only gradients need.

    Args:
        table: Embeddings, (rows of the table, features).
        rows: Which rows are in bags, (n,).
        offsets: Where each bag begins in them, (bags,); with include_last_offset also the end.
        scale_grad_by_freq: For gradients.
        mode: 0 for sums, 1 for means, 2 for maxima.
        sparse: For gradients.
        weights: Factors of the rows, (n,).
        include_last_offset: The last offset is the end of the last bag.
        padding_idx: A row that is in no bag; -1 for none.
    """
    starts = offsets[:-1] if include_last_offset else offsets
    place = torch.arange(rows.shape[0], device=rows.device)
    bag = (place.unsqueeze(1) >= starts).to(torch.int64).sum(1) - 1
    inside = bag == torch.arange(starts.shape[0], device=rows.device).unsqueeze(1)
    if padding_idx >= 0:
        inside = inside & (rows != padding_idx)
    chosen = torch.nn.functional.embedding(rows, table)
    if weights is not None:
        chosen = chosen * weights.unsqueeze(1)
    sizes = inside.to(torch.int64).sum(1)
    # PyTorch looks at where the last bag ends only where it adds, without padding.
    if include_last_offset and mode != 2 and padding_idx < 0:
        inside = inside & (place < offsets[-1:])
    if mode == 2:
        result = torch.where((sizes > 0).unsqueeze(1), _peaks(chosen, inside), 0.0)
    else:
        # Not a product, since a NaN of another bag would be in it.
        result = torch.where(inside.unsqueeze(2), chosen, 0.0).sum(1)
    if mode == 1:
        result = result / sizes.clamp(min=1).unsqueeze(1).to(table.dtype)
    best = torch.zeros_like(result, dtype=rows.dtype) if mode == 2 else torch.zeros_like(sizes)
    return result, bag, sizes, best


def _peaks(chosen: Tensor, inside: Tensor) -> Tensor:
    """Return the maximum of each bag; like PyTorch's, NaN only if the first row is NaN."""
    counted = inside.unsqueeze(2) & ~torch.isnan(chosen)
    first = torch.index_select(chosen, 0, inside.to(torch.int64).argmax(1))
    peak, _ = torch.max(torch.where(counted, chosen, -math.inf), 1)
    return torch.where(torch.isnan(first), first, peak)


# Called without gradients, and the same.
FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten._embedding_bag_forward_only.default: aten._embedding_bag.default,
}
