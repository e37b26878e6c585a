"""Formulas of special functions, computed in float64 so that series need no care."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions.elementwise import floating

aten = torch.ops.aten
# From here on, continued fractions and asymptotic series are exact to a few bits.
_LARGE = 2.5
_SHIFT = 8
# Coefficients of 1 / x, 1 / x^3, … of the logarithm of the gamma function.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
# Of 1 / x^2, 1 / x^4, … of its first derivative, and of 1 / x^3, 1 / x^5, … of its second.
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
# For the inverse error function to seven digits, by Mike Giles: near zero, and in the tails.
_CENTRE = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def _double(formula: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a formula of one tensor, computed in float64."""

    def computed(x: Tensor) -> Tensor:
        return formula(x.to(torch.float64)).to(floating(x).dtype)

    return computed


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """Horner's scheme, the highest power first."""
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _tail(x: Tensor) -> Tensor:
    """exp(x²) erfc(x) for large x: a continued fraction."""
    fraction = x
    for step in range(60, 0, -1):
        fraction = x + step / 2 / fraction
    return 1 / (fraction * math.sqrt(math.pi))


def _erfc(x: Tensor) -> Tensor:
    large = torch.clamp(x, min=_LARGE)
    return torch.where(x < _LARGE, 1 - torch.erf(x), torch.exp(-large * large) * _tail(large))


def _erfcx(x: Tensor) -> Tensor:
    small = torch.clamp(x, max=_LARGE)
    near = torch.exp(small * small) * (1 - torch.erf(small))
    return torch.where(x < _LARGE, near, _tail(torch.clamp(x, min=_LARGE)))


def _erfinv(x: Tensor) -> Tensor:
    inside = torch.where(x.abs() < 1, x, 0.0)
    logarithm = -torch.log((1 - inside) * (1 + inside))
    centre = _polynomial(_CENTRE, logarithm - 2.5)
    tail = _polynomial(_TAIL, torch.sqrt(logarithm) - 3)
    value = torch.where(logarithm < 5, centre, tail) * inside
    for _ in range(2):
        slope = 2 / math.sqrt(math.pi) * torch.exp(-value * value)
        value = value - (torch.erf(value) - inside) / slope
    outside = torch.where(x.abs() == 1, x * math.inf, math.nan)
    return torch.where(x.abs() < 1, value, outside)


def _series(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """Return a polynomial of 1 / x², the lowest power first."""
    return _polynomial(coefficients[::-1], 1 / (x * x))


def _reflected(x: Tensor) -> tuple[Tensor, Tensor]:
    """Arguments from 1/2 on, and whether they were reflected there."""
    below = x < 0.5
    return torch.where(below, 1 - x, x), below


def _lgamma(x: Tensor) -> Tensor:
    y, below = _reflected(x)
    # Where it is exact enough, and where the product would overflow.
    near = y < 1e3
    shifted = torch.where(near, y + _SHIFT, y)
    product = torch.ones_like(y)
    small = torch.where(near, y, 1.0)
    for step in range(_SHIFT):
        product = product * (small + step)
    value = (shifted - 0.5) * (torch.log(shifted) - 1) + (math.log(2 * math.pi) - 1) / 2
    value = value + _series(_STIRLING, shifted) / shifted
    value = value - torch.where(near, torch.log(product), 0.0)
    sine = torch.sin(math.pi * (x - torch.round(x))).abs()
    pole = x == torch.floor(x)
    other = math.log(math.pi) - torch.log(torch.where(pole, 1.0, sine)) - value
    value = torch.where(below, torch.where(pole, math.inf, other), value)
    return torch.where(torch.isinf(x), math.inf, value)


def _digamma(x: Tensor) -> Tensor:
    y, below = _reflected(x)
    shifted = y + _SHIFT
    value = torch.log(shifted) - 0.5 / shifted + _series(_DIGAMMA, shifted) / (shifted * shifted)
    for step in range(_SHIFT):
        value = value - 1 / (y + step)
    whole = x == torch.floor(x)
    other = value - math.pi / torch.tan(math.pi * torch.where(whole, 0.25, x - torch.round(x)))
    # At zero it has the sign that the zero doesn't have.
    pole = torch.where(x == 0, -1 / x, math.nan)
    return torch.where(below, torch.where(whole, pole, other), value)


def _trigamma(x: Tensor) -> Tensor:
    y, below = _reflected(x)
    shifted = y + _SHIFT
    value = 1 / shifted + 0.5 / (shifted * shifted)
    value = value + _series(_TRIGAMMA, shifted) / (shifted * shifted * shifted)
    for step in range(_SHIFT):
        value = value + 1 / ((y + step) * (y + step))
    sine = torch.sin(math.pi * (x - torch.round(x)))
    other = math.pi**2 / (sine * sine) - value
    return torch.where(below, torch.where(x == torch.floor(x), math.inf, other), value)


def _polygamma(n: int, x: Tensor) -> Tensor:
    if n > 1:
        raise NotImplementedError("only the first two")
    return _double(_trigamma if n else _digamma)(x)


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    aten.erfc.default: _double(_erfc),
    aten.special_erfcx.default: _double(_erfcx),
    aten.erfinv.default: _double(_erfinv),
    aten.lgamma.default: _double(_lgamma),
    aten.digamma.default: _double(_digamma),
    aten.polygamma.default: _polygamma,
}
