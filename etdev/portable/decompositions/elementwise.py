"""Formulas of ops that compute one value from one of each input."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
# For the inverse error function to seven digits, by Mike Giles: near zero, and in the tails.
_CENTRE = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


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


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """Horner's scheme, the highest power first."""
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _erfinv(given: Tensor) -> Tensor:
    """Compute an approximation and two steps of Newton's method, in float64."""
    x = given.to(torch.float64)
    inside = torch.where(x.abs() < 1, x, 0.0)
    logarithm = -torch.log((1 - inside) * (1 + inside))
    centre = _polynomial(_CENTRE, logarithm - 2.5)
    tail = _polynomial(_TAIL, torch.sqrt(logarithm) - 3)
    value = torch.where(logarithm < 5, centre, tail) * inside
    for _ in range(2):
        slope = 2 / math.sqrt(math.pi) * torch.exp(-value * value)
        value = value - (torch.erf(value) - inside) / slope
    outside = torch.where(x.abs() == 1, x * math.inf, math.nan)
    return torch.where(x.abs() < 1, value, outside).to(floating(given).dtype)


def _multiply_add(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x * y + z


def floating(x: Tensor) -> Tensor:
    """Return a tensor as torch promotes it for functions that have no integer results."""
    return x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())


def tanh_gelu(x: Tensor, *, approximate: str) -> Tensor:
    """Return the GELU x / 2 * (1 + tanh(u)) as x * sigmoid(2 * u), which is the same."""
    scale = 2 * math.sqrt(2 / math.pi)
    # Beyond 11 the GELU is x or 0. Some backends have a sigmoid that is NaN for huge numbers.
    near = x.clamp(-11, 11)
    return x * torch.sigmoid(near * (near * near * (0.044715 * scale) + scale))


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten.erfinv.default: _erfinv,
    aten.exp2.default: partial(torch.pow, 2.0),
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
