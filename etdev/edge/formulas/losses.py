"""Losses that torch's own decomposition computes otherwise than its kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

_MEAN, _SUM = 1, 2


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Labels after the first -1 don't count; torch's decomposition counts them as label 0."""
    rows, labels = x.reshape(-1, x.shape[-1]), target.reshape(-1, x.shape[-1])
    count = x.shape[-1]
    places = torch.arange(count, device=x.device)
    end = torch.amin(torch.where(labels == -1, places, count), -1, keepdim=True)
    counts = places < end
    label = torch.where(counts, labels, 0)
    is_label = ((label.unsqueeze(-1) == places) & counts.unsqueeze(-1)).any(1)
    margin = 1 - torch.gather(rows, 1, label).unsqueeze(-1) + rows.unsqueeze(1)
    read = counts.unsqueeze(-1) & ~is_label.unsqueeze(1)
    loss = torch.where(read, _positive(margin) / count, 0).sum((1, 2))
    return _reduced(loss, x, reduction), is_label.to(x.dtype).reshape(target.shape)


def _positive(margin: Tensor) -> Tensor:
    """What counts of a margin: nothing of NaN."""
    return torch.where(margin > 0, margin, 0)


def _reduced(loss: Tensor, x: Tensor, reduction: int) -> Tensor:
    """The loss of rows, or what it is reduced to."""
    if reduction == _MEAN:
        return loss.mean()
    if reduction == _SUM:
        return loss.sum()
    return loss if x.dim() == 2 else loss.reshape(())


# In place of what torch's tables have for them.
CORRECTED: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
}
# What torch decomposes wrongly for ordinary values.
WRONG = ("multilabel_margin_loss", "multilabel_margin_loss_forward")
