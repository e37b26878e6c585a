"""Formulas of Core ATen ops that portable kernels lack, fail on, or compute wrongly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions import integers
from etdev.portable.decompositions.sizes import fixed, in_range

aten = torch.ops.aten


def floor_division(x: Tensor, y: Any, *, rounding_mode: str) -> Tensor:
    """Divide floats and round down.

    The kernel returns infinity for NaN divided by zero, and -15.999999 for -4.7 // 0.3.
    """
    down = torch.round(torch.div(x, y, rounding_mode=rounding_mode))
    return torch.where(torch.eq(y, 0), torch.div(x, y).to(down.dtype), down)


def sign(x: Tensor) -> Tensor:
    """Return the sign of floats, and zero for NaN."""
    return torch.where(torch.isnan(x), 0.0, torch.sign(x)).to(x.dtype)


def root(x: Tensor, exponent: float) -> Tensor:
    """Compute a power as a root, as PyTorch does: NaN for -inf, -0.0 for -0.0."""
    return torch.sqrt(x) if exponent > 0 else torch.rsqrt(x)


def empty_product(x: Tensor, y: Tensor) -> Tensor:
    """Compute `mm` or `bmm` with inner size 0, where the kernel leaves its output unwritten."""
    if isinstance(x.shape[-1], int):
        return torch.zeros((*x.shape[:-1], y.shape[-1]), dtype=x.dtype)
    rows = torch.cat([x, x.new_zeros((*x.shape[:-1], 1))], -1)
    columns = torch.cat([y, y.new_zeros((*y.shape[:-2], 1, y.shape[-1]))], -2)
    return torch.mm(rows, columns) if x.dim() == 2 else torch.bmm(rows, columns)


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Compute `log_softmax` along a possibly empty dimension, by padding it with -inf."""
    if x.shape[dim] == 0:
        return x.clone()
    shape = [1 if axis == dim % x.dim() else size for axis, size in enumerate(x.shape)]
    longer = torch.cat([x, torch.full(shape, -math.inf, dtype=x.dtype)], dim)
    result: Tensor = aten._log_softmax.default(longer, dim, half_to_float)
    return result.narrow(dim, 0, x.shape[dim])


def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Compute `roll` on a possibly empty dimension; the kernel divides by its size."""
    if not dims:
        return roll(x.reshape(-1), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = torch.full((1,), x.shape[dim], dtype=torch.int64)
        places = integers.remainder(torch.arange(x.shape[dim]) - shift, torch.clamp(size, min=1))
        x = _picked(x, dim, places)
    return x


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Compute `index_select` on a possibly empty dimension; the kernel rejects it."""
    return _picked(x, dim, in_range(index, x.shape[dim]).reshape(-1))


def _picked(x: Tensor, dim: int, places: Tensor) -> Tensor:
    return aten.index.Tensor(x, [*[None] * (dim % x.dim()), places])


def distances(x: Tensor, y: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """Count the coordinates that differ; NaN for NaN, which the kernel counts."""
    apart = x.unsqueeze(-2) - y.unsqueeze(-3)
    count = (apart != 0).to(x.dtype).sum(-1)
    return torch.where(torch.isnan(apart).any(-1), math.nan, count)


def distances_of_pairs(x: Tensor, p: float = 2) -> Tensor:
    """Compute `distances` of each row and every later one."""
    rows = fixed(x.shape[0])
    apart = distances(x, x, p, None)
    return torch.cat([apart[row].narrow(0, row + 1, rows - row - 1) for row in range(rows)])


def of_number(op: Any) -> Callable[..., Tensor]:
    """Arithmetic with a number of another kind, in the dtype that torch promotes to."""

    def formula(x: Tensor, number: Any, *args: Any) -> Tensor:
        return op(x.to(torch.result_type(x, number)), number, *args)

    return formula


def to_complex(x: Tensor, *, dtype: torch.dtype, **options: Any) -> Tensor:
    """Convert by way of float64, since the kernel can't convert this dtype to complex."""
    return x.to(torch.float64).to(dtype)


def cropped(x: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """Pad by negative sizes, which crops."""
    for index in range(len(pad) // 2):
        before, after = pad[2 * index], pad[2 * index + 1]
        dim, start = x.dim() - 1 - index, max(-before, 0)
        x = x.narrow(dim, start, x.shape[dim] - start - max(-after, 0))
    return aten.constant_pad_nd(x, [max(size, 0) for size in pad], value)


def sum_of_one(
    x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Sum a tensor without dimensions."""
    known = torch.int64 if not x.dtype.is_floating_point and not x.dtype.is_complex else x.dtype
    return x.to(dtype or known, copy=True)


def cumsum_of_one(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Compute the cumulative sum of a tensor without dimensions."""
    return sum_of_one(x, [dim], dtype=dtype)


def unfold_of_one(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Unfold a tensor without dimensions."""
    return x.reshape(1).narrow(0, 0, size)


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Compute `softmax` of float16 in float32."""
    return torch.softmax(x.to(torch.float32), dim)


def narrow_copy(x: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """Narrow along a nonnegative dimension, as the kernel needs."""
    return torch.narrow(x, dim % x.dim(), start, length).clone()


def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """Return zeros for uninitialised memory."""
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
    """Convolve volumes: a sum of convolutions of their slices."""
    steps, around, apart = (_three(values) for values in (stride, padding, dilation))
    rest = _three(output_padding)
    if x.dim() == 4:
        arguments = (weight, bias, steps, around, apart, transposed, rest, groups)
        return convolution(x.unsqueeze(0), *arguments).squeeze(0)
    plane = (steps[1:], around[1:], apart[1:], transposed, rest[1:], groups)
    if not transposed:
        return _gathered(x, weight, bias, steps[0], around[0], apart[0], plane)
    result = _spread(x, weight, steps[0], around[0], apart[0], rest[0], plane)
    return result if bias is None else result + bias.reshape(1, -1, 1, 1, 1)


def _planes(x: Tensor, weight: Tensor, plane: Any) -> Tensor:
    """Convolve each slice of a volume; the slices are taken for a batch."""
    batch, channels, depth, height, width = x.shape
    flat = x.permute(0, 2, 1, 3, 4).reshape(batch * depth, channels, height, width)
    result: Tensor = aten.convolution.default(flat, weight, None, *plane)
    shape = (batch, depth, *result.shape[1:])
    return torch.permute(result.reshape(shape), (0, 2, 1, 3, 4))


def _gathered(
    x: Tensor, weight: Tensor, bias: Tensor | None, step: int, pad: int, apart: int, plane: Any
) -> Tensor:
    kernel = fixed(weight.shape[2])
    x = torch.constant_pad_nd(x, [0, 0, 0, 0, pad, pad]) if pad else x
    depth = (x.shape[2] - apart * (kernel - 1) - 1) // step + 1
    # The slices are a batch until all of them are added.
    slices, total = x.permute(0, 2, 1, 3, 4), None
    for place in range(kernel):
        part = slices.narrow(1, place * apart, (depth - 1) * step + 1)[:, ::step]
        flat = part.reshape(x.shape[0] * depth, *x.shape[1:2], *x.shape[3:])
        own = bias if place == 0 else None
        value: Tensor = aten.convolution.default(flat, weight.select(2, place), own, *plane)
        total = value if total is None else total + value
    assert total is not None
    result = total.reshape(x.shape[0], depth, *total.shape[1:])
    return torch.permute(result, (0, 2, 1, 3, 4))


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
