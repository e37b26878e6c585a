"""Corrections of what torch's own decompositions compute differently from its kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions import kernels, sampling
from etdev.portable.decompositions.sizes import in_range, least, unless
from etdev.upstream.decompositions import further_pieces

aten = torch.ops.aten
_LINEAR = (aten.upsample_linear1d.vec, aten.upsample_trilinear3d.vec)
_WRITES = (aten.index_add.default, aten.index_copy.default)
_FILLS = (aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
_MEAN, _SUM = 1, 2
# A number below all scores of attention; the least float16 is above it.
_DISTANT = -1e30


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Labels after the first -1 don't count; torch's decomposition counts them as label 0."""
    if x.dim() < 2 and reduction not in (_MEAN, _SUM):
        raise NotImplementedError("torch takes the loss of one row for a vector")
    count = x.shape[-1] if x.dim() else 1
    rows, labels = x.reshape(-1, count), target.reshape(-1, count)
    places = torch.arange(count, device=x.device)
    end = torch.amin(torch.where(labels == -1, places, count), -1, keepdim=True)
    counts = places < end
    label = torch.where(counts, labels, 0)
    is_label = ((label.unsqueeze(-1) == places) & counts.unsqueeze(-1)).any(1)
    margin = 1 - torch.gather(rows, 1, label).unsqueeze(-1) + rows.unsqueeze(1)
    positive = torch.where(margin > 0, margin, 0)  # 0 for NaN, too.
    read = counts.unsqueeze(-1) & ~is_label.unsqueeze(1)
    loss = torch.where(read, positive / count, 0).sum((1, 2))
    return _reduced(loss, reduction), is_label.to(x.dtype).reshape(target.shape)


def _multilabel_loss(x: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    """Compute the loss alone."""
    return _multilabel_margin_loss(x, target, reduction)[0]


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    """Return the loss of rows, or what it is reduced to."""
    if reduction == _MEAN:
        return loss.mean()
    return loss.sum() if reduction == _SUM else loss


def _linear(
    x: Tensor, output_size: Any, align_corners: bool, scale_factors: Any = None, *, op: Any
) -> Tensor:
    if x.dtype.is_floating_point and all(isinstance(size, int) for size in x.shape[2:]):
        return sampling.linear(x, output_size, align_corners, scale_factors)
    return _known(op, x, output_size, align_corners, scale_factors)


def _one_hot(labels: Tensor, num_classes: int = -1) -> Tensor:
    """Scatter ones with a kernel that refuses labels out of range, as eager PyTorch does."""
    if num_classes < 0:
        raise NotImplementedError("as many classes as labels say")
    zeros = torch.zeros((*labels.shape, num_classes), dtype=torch.int64, device=labels.device)
    return zeros.scatter(-1, labels.unsqueeze(-1), 1)


def _logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    """Compute `logsumexp` of a possibly empty dimension, by padding it with -inf."""
    reduced = {axis % x.dim() for axis in dim or range(x.dim())} if x.dim() else set()
    if x.dtype.is_floating_point and any(least(x.shape[axis]) <= 0 for axis in reduced):
        pad = [int(axis in reduced) * end for axis in reversed(range(x.dim())) for end in (0, 1)]
        x = torch.constant_pad_nd(x, pad, -math.inf)
    return _known(aten.logsumexp.default, x, dim, keepdim)


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Compute `roll` of a possibly empty tensor, without a remainder of its size."""
    if all(least(size) > 0 for size in x.shape):
        return _known(aten.roll.default, x, shifts, dims)
    return kernels.roll(x, shifts, dims)


def _at_places(
    x: Tensor, dim: int, index: Tensor, source: Tensor, *, op: Any, **options: Any
) -> Tensor:
    """Compute `index_add` or `index_copy`; refuse negative places, as eager PyTorch does."""
    places = in_range(index, x.shape[dim] if x.dim() else 1)
    return _known(op, x, dim, places, source, **options)


def _index_fill(x: Tensor, dim: int, index: Tensor, value: Any, *, op: Any) -> Tensor:
    """Compute `index_fill`; accept negative places, unlike the copy that torch makes of it."""
    size = x.shape[dim] if x.dim() else 1
    return _known(op, x, dim, torch.where(index < 0, index + size, index), value)


def _binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN
) -> Tensor:
    """Compute the loss; refuse probabilities outside of 0 to 1, as eager PyTorch does."""
    outside = torch.logical_not(((x >= 0) & (x <= 1)).all())
    loss = _known(aten.binary_cross_entropy.default, x, target, weight, reduction)
    return unless(outside, loss)


def _known(op: Any, *args: Any, **options: Any) -> Tensor:
    """Return the result of torch's own decomposition."""
    pieces: Any = further_pieces(op)
    return pieces(*args, **options)


def _safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return a softmax whose rows of nothing but -inf are 0.

    Torch's decomposition compares each element with -inf, which takes longer than the softmax.
    """
    x = x.to(dtype or x.dtype)
    least = torch.finfo(x.dtype).min
    if least > _DISTANT:
        return _softmax_beside_greatest(x, dim)
    # Without amax, for which XNNPACK reorders the memory of four dimensions. Divided by the least
    # number, finite numbers are at most 1 and -inf is inf. The softmax reads half of the least
    # number for all that is lower, and the least number for -inf.
    twice = (x / least).clamp(1, 2)
    return torch.softmax(x.clamp(min=least / 2) * twice, dim) * (2 - twice)


def _softmax_beside_greatest(x: Tensor, dim: int) -> Tensor:
    """Return the same softmax for float16, where half of the least number is near scores."""
    least = torch.finfo(x.dtype).min
    # Subtracting the greatest element of a row leaves a 0 in it. Only in a row of nothing but -inf
    # all become the least number. The first clamp makes backends agree on the greatest element of
    # such a row, which is the least number in some.
    beside = (x - x.amax(dim, keepdim=True).clamp(min=least)).clamp(min=least)
    seen = (beside.amax(dim, keepdim=True) + 1).clamp(0, 1)
    return torch.softmax(beside, dim) * seen


# In place of what torch's tables have for them. For multilabel_margin_loss that is wrong; for
# binary_cross_entropy, index_add, index_copy and one_hot it computes where eager PyTorch raises;
# for _safe_softmax it is slow.
FORMULAS: Mapping[Any, Callable[..., Any]] = {
    # The whole loss: torch calls its own decomposition of the inner op while it traces.
    aten.multilabel_margin_loss.default: _multilabel_loss,
    aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
    aten.binary_cross_entropy.default: _binary_cross_entropy,
    **{op: partial(_at_places, op=op) for op in _WRITES},
    **{op: partial(_index_fill, op=op) for op in _FILLS},
    aten.logsumexp.default: _logsumexp,
    aten._safe_softmax.default: _safe_softmax,
    aten.one_hot.default: _one_hot,
    **{op: partial(_linear, op=op) for op in _LINEAR},
    aten.roll.default: _roll,
}
