"""Errors of outputs against PyTorch's, measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen

from etdev.errors import RunError


@frozen
class OutputError:
    """The largest absolute error of one output, and the largest value that eager has for it.

    An output of another shape is infinitely far off.
    """

    max_error: float
    max_value: float

    @classmethod
    def of(cls, output: Any, expected: Any) -> OutputError:
        """Measure an output; equal infinities and NaN on both sides are no errors."""
        a, b = torch.as_tensor(output), torch.as_tensor(expected)
        if a.shape != b.shape or not b.numel():
            return cls(0.0 if a.shape == b.shape else math.inf, 0.0)
        return cls(float(errors_of(a, b).max()), float(_wide(b).abs().max()))

    def __str__(self) -> str:
        return f"max error {self.max_error:.3g} (largest value {self.max_value:.3g})"


def errors_of(output: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return the absolute error of each number; equal infinities and NaN have none."""
    a, b = _wide(output), _wide(expected)
    return torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to("cpu", torch.complex128 if value.is_complex() else torch.float64)


def compare(outputs: Sequence[Any], expected: Sequence[Any]) -> list[OutputError]:
    """Measure how far each output is from eager PyTorch's."""
    if len(outputs) != len(expected):
        what = f"{len(outputs)} outputs against {len(expected)} of eager"
        raise RunError("check", what, "name the model that this .pte was lowered from")
    return list(map(OutputError.of, outputs, expected))
