"""Formulas of ops that compute one value from one of each input."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _exp2(x: Tensor) -> Tensor:
    return torch.pow(2.0, x)


def _without_nan(x: Tensor, y: Tensor, *, op: Any) -> Tensor:
    """Return one of two numbers where the other is NaN, else the result of an op for both."""
    both = op(x, y)
    if not both.dtype.is_floating_point:
        return both
    return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, both))


def _trilinear(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    factors = []
    for factor, dims in ((x, expand1), (y, expand2), (z, expand3)):
        for dim in dims:
            factor = factor.unsqueeze(dim)
        factors.append(factor)
    product = factors[0] * factors[1] * factors[2]
    return product.sum(list(sumdim)) if sumdim else product


def signbit(x: Tensor) -> Tensor:
    """Return True if numbers have a sign, zeros included. The sign of a NaN can't be computed."""
    if not x.dtype.is_floating_point:
        return x < 0
    return (x < 0) | ((x == 0) & (torch.reciprocal(x) < 0))


def _copysign(x: Tensor, sign: Tensor) -> Tensor:
    size = floating(x).abs()
    return torch.where(signbit(sign), -size, size)


def _copysign_scalar(x: Tensor, sign: float) -> Tensor:
    size = floating(x).abs()
    return -size if math.copysign(1.0, sign) < 0 else size


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    large = torch.maximum(x.abs(), y.abs())
    small = torch.minimum(x.abs(), y.abs())
    # Nothing overflows that the result doesn't.
    ratio = small / torch.where(large == 0, 1.0, large)
    length = large * torch.sqrt(ratio * ratio + 1)
    return torch.where(torch.isinf(x) | torch.isinf(y), math.inf, length).to(large.dtype)


def _remainder_of_number(x: Any, y: Tensor) -> Tensor:
    return torch.remainder(torch.scalar_tensor(x, dtype=torch.result_type(x, y)), y)


def _rrelu(
    x: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    *args: Any,
) -> tuple[Tensor, Tensor]:
    if training:
        raise NotImplementedError("it draws random numbers")
    return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise.clone()


def _shifted(x: Tensor, places: Any, *, op: Any) -> Tensor:
    if x.dtype.is_floating_point:
        raise NotImplementedError("a shift of floats")
    return op(x, places)


def _shifted_number(number: int, places: Tensor, *, op: Any) -> Tensor:
    dtype = torch.result_type(number, places)
    return op(torch.full((), number, dtype=dtype), places.to(dtype))


_left_shift = partial(_shifted, op=torch.bitwise_left_shift)
_right_shift = partial(_shifted, op=torch.bitwise_right_shift)


def _multiply_add(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x * y + z


def floating(x: Tensor) -> Tensor:
    """Return a tensor as torch promotes it for functions that have no integer results."""
    return x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten.exp2.default: _exp2,
    aten.fmax.default: partial(_without_nan, op=torch.maximum),
    aten.fmin.default: partial(_without_nan, op=torch.minimum),
    aten._trilinear.default: _trilinear,
    aten.signbit.default: signbit,
    aten.copysign.Tensor: _copysign,
    aten.copysign.Scalar: _copysign_scalar,
    aten.hypot.default: _hypot,
    aten.remainder.Scalar_Tensor: _remainder_of_number,
    aten.rrelu_with_noise_functional.default: _rrelu,
    aten.__lshift__.Tensor: _left_shift,
    aten.__lshift__.Scalar: _left_shift,
    aten.__rshift__.Tensor: _right_shift,
    aten.__rshift__.Scalar: _right_shift,
    aten.bitwise_left_shift.Scalar_Tensor: partial(_shifted_number, op=torch.bitwise_left_shift),
    aten.bitwise_right_shift.Scalar_Tensor: partial(_shifted_number, op=torch.bitwise_right_shift),
    torch.ops.prims.fma.default: _multiply_add,
}
