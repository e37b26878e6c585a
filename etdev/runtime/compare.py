"""Comparison: how far the outputs of a .pte are from those of eager PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen

from etdev.errors import RunError
from etdev.upstream.trees import pytree

_CURE = "check that --check names the model this .pte was lowered from"


@frozen
class Difference:
    """How far one output is from eager: the largest absolute error, and eager's largest value."""

    max_error: float
    max_value: float

    def exceeds(self, tolerance: float) -> bool:
        """Whether the error is above an absolute tolerance; nan always is."""
        # Negated, since nan is above nothing.
        return not self.max_error <= tolerance


def flat(value: Any) -> list[Any]:
    """Flatten inputs or outputs of eager PyTorch into the order of a .pte."""
    return [leaf for leaf in pytree.tree_leaves(value) if leaf is not None]


def compare(outputs: Sequence[Any], expected: Sequence[Any]) -> list[Difference]:
    """Measure how far each output is from eager.

    Raises:
        RunError: The number of outputs or a shape differs.
    """
    if len(outputs) != len(expected):
        raise RunError("check", f"{len(outputs)} outputs against {len(expected)} of eager", _CURE)
    return [_difference(i, a, b) for i, (a, b) in enumerate(zip(outputs, expected, strict=True))]


def _difference(index: int, output: Any, expected: Any) -> Difference:
    a, b = torch.as_tensor(output).detach(), torch.as_tensor(expected).detach()
    if a.shape != b.shape:
        shapes = f"has shape {tuple(a.shape)}, eager {tuple(b.shape)}"
        raise RunError("check", f"output {index} {shapes}", _CURE)
    if a.numel() == 0:
        return Difference(0.0, 0.0)
    a, b = a.to(torch.float64), b.to(torch.float64)
    # Equal infinities differ by nan and are not an error; a nan on one side alone is.
    error = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
    return Difference(float(error.max()), float(b.abs().max()))
