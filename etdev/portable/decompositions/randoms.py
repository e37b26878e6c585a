"""Formulas of random numbers, from those that kernels draw: uniform and normal ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _like(x: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
    return {"dtype": options.get("dtype") or x.dtype}


def _drawn_like(x: Tensor, *, draw: Callable[..., Tensor], **options: Any) -> Tensor:
    return draw(x.shape, **_like(x, options))


def _uniform(x: Tensor, low: float = 0, high: float = 1, generator: Any = None) -> Tensor:
    return torch.rand(x.shape, dtype=x.dtype) * (high - low) + low


def _normal(x: Tensor, mean: float = 0, std: float = 1, generator: Any = None) -> Tensor:
    return torch.randn(x.shape, dtype=x.dtype) * std + mean


def _normal_tensors(mean: Tensor, std: Any, generator: Any = None) -> Tensor:
    wide = mean + torch.zeros_like(std) if isinstance(std, Tensor) else mean
    drawn = torch.randn(wide.shape, dtype=mean.dtype)
    return torch.add(drawn * std, mean)


def _normal_around(mean: float, std: Tensor, generator: Any = None) -> Tensor:
    return torch.randn(std.shape, dtype=std.dtype) * std + mean


def _normal_of(mean: float, std: float, size: Any, **options: Any) -> Tensor:
    dtype = options.get("dtype") or torch.get_default_dtype()
    return torch.randn(size, dtype=dtype) * std + mean


def _randint(low: int, high: int, size: Any, **options: Any) -> Tensor:
    # float64 has more digits than a step, and may round up to the end.
    steps = torch.floor(torch.rand(size, dtype=torch.float64) * (high - low))
    drawn = torch.clamp(steps, max=high - low - 1) + low
    return drawn.to(options.get("dtype") or torch.int64)


def _randint_below(high: int, size: Any, **options: Any) -> Tensor:
    return _randint(0, high, size, **options)


def _randint_like(x: Tensor, high: int, **options: Any) -> Tensor:
    return _randint(0, high, x.shape, **_like(x, options))


def _randint_like_from(x: Tensor, low: int, high: int, **options: Any) -> Tensor:
    return _randint(low, high, x.shape, **_like(x, options))


def _bernoulli(x: Tensor, p: float = 0.5, generator: Any = None) -> Tensor:
    return (torch.rand(x.shape) < p).to(x.dtype)


def _dropout(x: Tensor, p: float, train: bool | None = None) -> tuple[Tensor, Tensor]:
    """Scale what is kept by 1 / (1 - p), which the kernel does not."""
    kept = torch.rand(x.shape) < (1 if train is False else 1 - p)
    scale = 1 if train is False or p == 1 else 1 / (1 - p)
    return x * kept.to(x.dtype) * scale, kept


def randperm(n: int, **options: Any) -> Tensor:
    """Return the order of random numbers."""
    _, order = torch.topk(torch.rand(n, dtype=torch.float64), n)
    return order.to(options.get("dtype") or torch.int64)


def _multinomial(
    weights: Tensor, num_samples: int, replacement: bool = False, generator: Any = None
) -> Tensor:
    """Return the places of the largest weights over exponentially distributed numbers."""
    if replacement and num_samples > 1:
        ends = torch.cumsum(weights, -1)
        drawn = torch.rand((*weights.shape[:-1], num_samples), dtype=weights.dtype)
        drawn = drawn * ends.narrow(-1, weights.shape[-1] - 1, 1)
        below = ends.unsqueeze(-2) <= drawn.unsqueeze(-1)
        return torch.clamp(below.to(torch.int64).sum(-1), max=weights.shape[-1] - 1)
    # 1 - u is never zero.
    waits = -torch.log(1 - torch.rand(weights.shape, dtype=weights.dtype))
    chances = torch.where(weights > 0, weights / waits, -math.inf)
    return torch.topk(chances, num_samples, -1)[1]


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten.rand_like.default: partial(_drawn_like, draw=torch.rand),
    aten.randn_like.default: partial(_drawn_like, draw=torch.randn),
    aten.uniform.default: _uniform,
    aten.normal_functional.default: _normal,
    aten.normal.Tensor_Tensor: _normal_tensors,
    aten.normal.Tensor_float: _normal_tensors,
    aten.normal.float_Tensor: _normal_around,
    aten.normal.float_float: _normal_of,
    aten.randint.default: _randint_below,
    aten.randint.low: _randint,
    aten.randint_like.default: _randint_like,
    aten.randint_like.low_dtype: _randint_like_from,
    aten.bernoulli.p: _bernoulli,
    aten.native_dropout.default: _dropout,
    aten.multinomial.default: _multinomial,
}
