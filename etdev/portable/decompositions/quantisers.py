"""Formulas of quantisers, whose kernels take float64 scales and int64 zero points alone.

Fake ones have no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import executorch.exir  # noqa: F401  (it registers them)
import torch
from torch import Tensor

from etdev.upstream.operators import OpOverload

DTYPES = (torch.float64, torch.int64)
_ops = torch.ops.quantized_decomposed
OPS: tuple[OpOverload, ...] = (
    _ops.quantize_per_channel.default,
    _ops.quantize_per_tensor.tensor,
    _ops.dequantize_per_tensor.tensor,
    _ops.quantize_per_token.default,
)


def exact(op: OpOverload) -> Callable[..., Any]:
    """Return a quantiser given scales and zero points as its kernel takes them."""

    def formula(x: Tensor, scales: Tensor, zero_points: Tensor, *args: Any, **kwargs: Any) -> Any:
        given = (scales, zero_points)
        if tuple(tensor.dtype for tensor in given) == DTYPES:
            return NotImplemented
        converted = (tensor.to(dtype) for tensor, dtype in zip(given, DTYPES, strict=True))
        return op(x, *converted, *args, **kwargs)

    return formula


def _fake(x: Tensor, scale: float, zero_point: int, low: int, high: int) -> tuple[Tensor, Tensor]:
    zero = torch.full((), float(zero_point))
    step = _steps(x, torch.full((), scale), zero)
    # NaN becomes the lowest.
    known = torch.where(torch.isnan(step), float(low), torch.clamp(step, low, high))
    return (known - zero) * scale, (step >= low) & (step <= high)


def _fake_channels(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    shape = [1] * x.dim()
    shape[axis] = -1
    scales, zeros = scale.to(torch.float32).reshape(shape), zero_point.to(torch.float32)
    zeros = zeros.reshape(shape)
    step = _steps(x, scales, zeros)
    # What no int64 holds becomes the least one.
    step = torch.where(step.abs() < 2.0**63, step, -(2.0**63))
    return (torch.clamp(step, low, high) - zeros) * scales, (step >= low) & (step <= high)


def _steps(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    if x.dtype != torch.float32:
        raise NotImplementedError("only of float32")
    return torch.round(x * torch.reciprocal(scale)) + zero_point


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default: _fake,
    torch.ops.aten.fake_quantize_per_channel_affine_cachemask.default: _fake_channels,
}
