"""Formulas of ops on integers whose kernels compute in floating point, or leave out a case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from etdev.upstream.operators import ROUNDS_RANGES

# Of an exponent whose powers are all multiplied; the largest that does not overflow has six.
_BITS = 16


def remainder(x: Tensor, y: Any) -> Tensor:
    """Return the remainder with the sign of the divisor."""
    one, two = _integers(x, y)
    return one - _floored(one, two) * two


def fmod(x: Tensor, y: Any) -> Tensor:
    """Return the remainder with the sign of the dividend."""
    x, y = _integers(x, y)
    # Not of absolute values: that of the least integer is negative.
    rest = x - _floored(x, y) * y
    return torch.where((rest != 0) & ((x < 0) != (rest < 0)), rest - y, rest)


def truncated_division(x: Tensor, y: Any, *, rounding_mode: str) -> Tensor:
    """Divide and round towards zero, with the kernel that rounds down."""
    x, y = _integers(x, y)
    down = torch.div(x, y, rounding_mode="floor")
    up = torch.logical_and(down < 0, down * y != x)
    return torch.add(down, up.to(down.dtype))


def floor_division(x: Tensor, y: Any, *, rounding_mode: str) -> Tensor:
    """Divide and round down."""
    return _floored(*_integers(x, y))


def _floored(x: Tensor, y: Tensor) -> Tensor:
    """Divide and round down; the kernel ends the process for the least integer divided by -1.

    A number as divisor is left unguarded, since that would cost each `x // 2` four more ops.
    """
    if y.dim() == 0 or torch.iinfo(x.dtype).bits < torch.iinfo(torch.int32).bits:
        return torch.div(x, y, rounding_mode="floor")
    negative = y == -1
    down = torch.div(x, torch.where(negative, 1, y), rounding_mode="floor")
    return torch.where(negative, -x, down)


def power(x: Any, y: Any) -> Tensor:
    """Compute a power by squaring, which overflows as PyTorch does."""
    base, _ = _integers(x, y)
    if not isinstance(y, Tensor):
        return _power_of_number(base, y)
    limits = torch.iinfo(y.dtype)
    bits = limits.bits - int(y.dtype.is_signed)
    if bits > _BITS:
        # Powers of an odd number repeat: the order of its group divides 2 to this power.
        bits = min(bits, torch.iinfo(base.dtype).bits - 2)
    result: Tensor | None = None
    for bit in range(bits):
        factor = torch.where(torch.bitwise_and(y, 1 << bit) == 0, 1, base)
        result = factor if result is None else result * factor
        base = base * base
    assert result is not None
    # All powers of an even number that large overflow to zero.
    high = y >= 1 << _BITS if limits.max > 1 << _BITS else None
    base, _ = _integers(x, y)
    if high is not None:
        result = torch.where(high & (torch.bitwise_and(base, 1) == 0), 0, result)
    if not y.dtype.is_signed:
        return result
    odd = torch.bitwise_and(y, 1) == 1
    inverse = torch.where(base == 1, 1, torch.where(base == -1, torch.where(odd, -1, 1), 0))
    return torch.where(y < 0, inverse.to(base.dtype), result)


def _power_of_number(base: Tensor, exponent: Any) -> Tensor:
    if not isinstance(exponent, int) or exponent < 0:
        raise NotImplementedError("a dynamic exponent")
    result: Tensor | None = None
    while exponent:
        if exponent % 2:
            result = base if result is None else result * base
        exponent //= 2
        base = base * base if exponent else base
    return torch.ones_like(base) if result is None else result.clone()


def _integers(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    dtype = torch.result_type(x, y)
    values = (v if isinstance(v, Tensor) else torch.full((), v, dtype=dtype) for v in (x, y))
    one, two = (value.to(dtype) for value in values)
    return one, two


def whole(x: Tensor) -> Tensor:
    """Copy integers, which rounding doesn't change."""
    return x.clone()


def total(
    x: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Return a sum over one dimension, as one over two: the kernel adds the former in float32."""
    (axis,) = dim or (0,)
    axis %= x.dim()
    result = torch.sum(x.unsqueeze(-1), [axis, x.dim()], dtype=dtype)
    return result.unsqueeze(axis) if keepdim else result


def steps(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, **options: Any) -> Tensor:
    """Return a range whose first value and step PyTorch rounds before it adds them.

    A kernel takes no bool for a number.
    """
    if any(isinstance(number, bool) for number in (start, end, step)):
        whole = (int(n) if isinstance(n, bool) else n for n in (start, end, step))
        return torch.arange(*whole, dtype=dtype)
    count = math.ceil((end - start) / step)
    whole_numbers = all(isinstance(number, int) for number in (start, end, step))
    if whole_numbers or (ROUNDS_RANGES and dtype == torch.int64):
        count = len(range(int(start), int(end), int(step)))
    numbers = torch.arange(count, dtype=torch.int64)
    values = numbers * int(step) + int(start)
    return values if dtype is None else values.to(dtype)


def left_shift(x: Tensor, places: Any) -> Tensor:
    """Shift left; the result is 0 for shifts out of range."""
    outside = _outside(x, places)
    inside = torch.where(outside, 0, places).to(x.dtype)
    return torch.where(outside, 0, torch.bitwise_left_shift(x, inside))


def right_shift(x: Tensor, places: Any) -> Tensor:
    """Shift right; only the sign is left for shifts out of range."""
    outside = _outside(x, places)
    near = torch.where(outside, torch.iinfo(x.dtype).bits - 1, places).to(x.dtype)
    shifted = torch.bitwise_right_shift(x, near)
    return shifted if x.dtype.is_signed else torch.where(outside, 0, shifted)


def shift_by_all(x: Tensor, places: int) -> Tensor:
    """Shift left by a number of bits that is out of range."""
    return torch.zeros_like(x)


def shift_to_sign(x: Tensor, places: int) -> Tensor:
    """Shift right by a number of bits that is out of range."""
    if not x.dtype.is_signed:
        return torch.zeros_like(x)
    return torch.bitwise_right_shift(x, torch.iinfo(x.dtype).bits - 1)


def _outside(x: Tensor, places: Tensor) -> Tensor:
    return (places < 0) | (places >= torch.iinfo(x.dtype).bits)
