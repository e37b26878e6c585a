"""Quantisers: their kernels take scales in float64 and zero points in int64 alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import executorch.exir  # noqa: F401  (it registers them)
import torch
from torch import Tensor
from torch._ops import OpOverload

DTYPES = (torch.float64, torch.int64)
_ops = torch.ops.quantized_decomposed
OPS: tuple[OpOverload, ...] = (
    _ops.quantize_per_channel.default,
    _ops.quantize_per_tensor.tensor,
    _ops.dequantize_per_tensor.tensor,
    _ops.quantize_per_token.default,
)


def exact(op: OpOverload) -> Callable[..., Any]:
    """A quantiser given scales and zero points as its kernel takes them."""

    def formula(x: Tensor, scales: Tensor, zero_points: Tensor, *args: Any, **kwargs: Any) -> Any:
        given = (scales, zero_points)
        if tuple(tensor.dtype for tensor in given) == DTYPES:
            return NotImplemented
        converted = (tensor.to(dtype) for tensor, dtype in zip(given, DTYPES, strict=True))
        return op(x, *converted, *args, **kwargs)

    return formula
