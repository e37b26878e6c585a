"""Formulas of Core ATen ops that portable kernels lack, fail on, or compute wrongly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from etdev.edge.formulas.order import fixed

aten = torch.ops.aten


def remainder(x: Tensor, y: Any) -> Tensor:
    """Of integers, with the sign of the divisor."""
    one, two = _integers(x, y)
    return one - torch.div(one, two, rounding_mode="floor") * two


def fmod(x: Tensor, y: Any) -> Tensor:
    """Of integers, with the sign of the dividend; the kernel computes in floating point."""
    x, y = _integers(x, y)
    size, divisor = x.abs(), y.abs()
    rest = size - torch.div(size, divisor, rounding_mode="floor") * divisor
    return torch.where(x < 0, -rest, rest)


def _integers(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    dtype = torch.result_type(x, y)
    values = (v if isinstance(v, Tensor) else torch.full((), v, dtype=dtype) for v in (x, y))
    one, two = (value.to(dtype) for value in values)
    return one, two


def whole(x: Tensor) -> Tensor:
    """Of integers, which the kernel takes through floating point."""
    return x.clone()


def sum_of_doubles(
    x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Of float64, whose kernel adds in float32; that of the mean does not."""
    if x.dim() == 0:
        return sum_of_one(x, dim, keepdim, dtype=dtype)
    dims = list(dim) if dim else list(range(x.dim()))
    count = math.prod(x.shape[axis] for axis in dims)
    if isinstance(count, int) and not count:
        raise NotImplementedError("of nothing")
    return torch.mean(x, dims, keepdim, dtype=torch.float64) * float(count)


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Of float64, whose kernel computes in float32."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    mean = torch.mean(x, dims, True)
    scale = torch.rsqrt(torch.var(x, dims, correction=0, keepdim=True) + eps)
    value = (x - mean) * scale
    value = value if weight is None else value * weight
    return value if bias is None else value + bias, mean, scale


def sum_of_one(
    x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Of a tensor without dimensions."""
    known = torch.int64 if not x.dtype.is_floating_point and not x.dtype.is_complex else x.dtype
    return x.to(dtype or known, copy=True)


def cumsum_of_one(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Of a tensor without dimensions."""
    return sum_of_one(x, [dim], dtype=dtype)


def unfold_of_one(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Of a tensor without dimensions."""
    return x.reshape(1).narrow(0, 0, size)


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Of float64, and of float16 in float32."""
    if half_to_float:
        return torch.log_softmax(x.to(torch.float32), dim)
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - torch.log(sum_of_doubles(torch.exp(shifted), [dim], True))


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Of float16 in float32."""
    return torch.softmax(x.to(torch.float32), dim)


def narrow_copy(x: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """With a dimension that the kernel finds."""
    return torch.narrow(x, dim % x.dim(), start, length).clone()


def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """Zeros: nobody can tell."""
    return torch.zeros(size, dtype=options.get("dtype"))


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Of volumes: a sum of convolutions of their slices."""
    steps, around, apart = (_three(values) for values in (stride, padding, dilation))
    rest = _three(output_padding)
    if x.dim() == 4:
        arguments = (weight, bias, steps, around, apart, transposed, rest, groups)
        return convolution(x.unsqueeze(0), *arguments).squeeze(0)
    plane = (steps[1:], around[1:], apart[1:], transposed, rest[1:], groups)
    pieces = _spread if transposed else _gathered
    result = pieces(x, weight, steps[0], around[0], apart[0], rest[0], plane)
    return result if bias is None else result + bias.reshape(1, -1, 1, 1, 1)


def _planes(x: Tensor, weight: Tensor, plane: Any) -> Tensor:
    """Convolve each slice of a volume; the slices are taken for a batch."""
    batch, channels, depth, height, width = x.shape
    flat = x.permute(0, 2, 1, 3, 4).reshape(batch * depth, channels, height, width)
    result: Tensor = aten.convolution.default(flat, weight, None, *plane)
    shape = (batch, depth, *result.shape[1:])
    return torch.permute(result.reshape(shape), (0, 2, 1, 3, 4))


def _gathered(
    x: Tensor, weight: Tensor, step: int, pad: int, apart: int, rest: int, plane: Any
) -> Tensor:
    kernel = fixed(weight.shape[2])
    x = torch.constant_pad_nd(x, [0, 0, 0, 0, pad, pad]) if pad else x
    depth = (x.shape[2] - apart * (kernel - 1) - 1) // step + 1
    total = None
    for place in range(kernel):
        part = x.narrow(2, place * apart, (depth - 1) * step + 1)[:, :, ::step]
        value = _planes(part, weight.select(2, place), plane)
        total = value if total is None else total + value
    assert total is not None
    return total


def _spread(
    x: Tensor, weight: Tensor, step: int, pad: int, apart: int, rest: int, plane: Any
) -> Tensor:
    kernel, depth = fixed(weight.shape[2]), fixed(x.shape[2])
    span = (depth - 1) * step + 1
    length = (depth - 1) * step + apart * (kernel - 1) + 1 + rest
    total = None
    for place in range(kernel):
        value = _planes(x, weight.select(2, place), plane)
        if step > 1:
            # Zeros between the slices.
            spaced = torch.constant_pad_nd(value.unsqueeze(3), [0, 0, 0, 0, 0, step - 1])
            shape = (*value.shape[:2], depth * step, *value.shape[3:])
            value = spaced.reshape(shape).narrow(2, 0, span)
        before = place * apart
        value = torch.constant_pad_nd(value, [0, 0, 0, 0, before, length - span - before])
        total = value if total is None else total + value
    assert total is not None
    return total.narrow(2, pad, length - 2 * pad)


def _three(values: Sequence[int]) -> list[int]:
    return list(values) if len(values) == 3 else [values[0]] * 3


def max_pool2d_backward(
    gradient: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Add each gradient at the place that its maximum came from."""
    shape = (*x.shape[:-2], x.shape[-2] * x.shape[-1])
    flat = torch.zeros(shape, dtype=x.dtype, device=x.device)
    count = math.prod(gradient.shape[-2:])
    given = (*gradient.shape[:-2], count)
    added = torch.scatter_add(flat, -1, indices.reshape(given), gradient.reshape(given))
    return torch.reshape(added, x.shape)
