"""Formulas of ops on float64 whose kernels compute in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def remainder(x: Tensor, y: Tensor | float) -> Tensor:
    """Return the remainder with the sign of the divisor."""
    dtype = torch.result_type(x, y)
    divisor = y if isinstance(y, Tensor) else torch.full((), y, dtype=dtype)
    rest = torch.fmod(x, divisor)
    other_sign = (rest != 0) & ((divisor < 0) != (rest < 0))
    return torch.where(other_sign, rest + divisor, rest)


def total(
    x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Return a sum; the kernel of the mean does not round."""
    dims = list(dim) if dim else list(range(x.dim()))
    count = math.prod(x.shape[axis] for axis in dims)
    if isinstance(count, int) and not count:
        raise NotImplementedError("the tensor is empty")
    return torch.mean(x, dims, keepdim, dtype=torch.float64) * count


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise the last dimensions."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    value, mean, scale = _normed(x, dims, eps)
    return _scaled(value, weight, bias, shape), mean, scale


def group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise groups of channels."""
    value, mean, scale = _normed(x.reshape(batch, groups, -1), [2], eps)
    value = _scaled(value.reshape(x.shape), weight, bias, [channels] + [1] * (x.dim() - 2))
    return value, mean.reshape(batch, groups), scale.reshape(batch, groups)


def _normed(x: Tensor, dims: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    mean = torch.mean(x, dims, True)
    scale = torch.rsqrt(torch.var(x, dims, correction=0, keepdim=True) + eps)
    return (x - mean) * scale, mean, scale


def _scaled(
    value: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int]
) -> Tensor:
    value = value if weight is None else value * weight.reshape(shape)
    return value if bias is None else value + bias.reshape(shape)


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise a batch without running statistics."""
    value, mean, scale = _normed(x, [0, *range(2, x.dim())], eps)
    value = _scaled(value, weight, bias, [-1] + [1] * (x.dim() - 2))
    return value, mean.reshape(-1), scale.reshape(-1)


def no_formula(*args: Any) -> Tensor:
    """Refuse an op without a formula, such as one for float64."""
    raise NotImplementedError("torch's own decomposition rounds, too, or there is none")


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Compute `log_softmax` of float64, and of float16 in float32."""
    if half_to_float:
        return torch.log_softmax(x.to(torch.float32), dim)
    shifted = x - torch.max(x, dim, keepdim=True)[0]
    return shifted - torch.log(total(torch.exp(shifted), [dim], True))
