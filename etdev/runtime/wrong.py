"""What is wrong with the outputs of a call, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from etdev.graph.nodes import dtype_name
from etdev.runtime.compare import Difference, compare
from etdev.runtime.tolerance import Tolerance


def wrong(
    values: Sequence[Any], expected: Sequence[Any], tolerance: Tolerance, kind: str = "output"
) -> str | None:
    """Say how values depart from those of eager PyTorch; None if they are within the tolerance.

    Args:
        values: Of the runtime.
        expected: Of eager PyTorch.
        tolerance: What they may be off by.
        kind: What they are.
    """
    values = [value for value in values if value is not None]
    if len(values) != len(expected):
        return f"{len(values)} {kind}s against {len(expected)} of eager PyTorch"
    for index, (value, wanted) in enumerate(zip(values, expected, strict=True)):
        if problem := _mismatch(value, wanted, tolerance):
            return f"{kind} {index} {problem}"
    return None


def _mismatch(value: Any, wanted: Any, tolerance: Tolerance) -> str | None:
    if isinstance(wanted, str) or isinstance(value, str):
        return None if value == wanted else f"is {value!r}, in eager PyTorch {wanted!r}"
    a, b = torch.as_tensor(value), torch.as_tensor(wanted)
    tensors = isinstance(value, torch.Tensor) and isinstance(wanted, torch.Tensor)
    if a.shape != b.shape:
        return f"has shape {tuple(a.shape)}, in eager PyTorch {tuple(b.shape)}"
    if tensors and a.dtype != b.dtype:
        return f"is {dtype_name(a.dtype)}, in eager PyTorch {dtype_name(b.dtype)}"
    (difference,) = compare([a], [b])
    allowed = tolerance.allowed(b)
    return f"is off by {_text(difference, allowed)}" if difference.exceeds(allowed) else None


def _text(difference: Difference, allowed: float) -> str:
    largest = f"largest value {difference.max_value:.3g}"
    return f"{difference.max_error:.3g} ({largest}, tolerance {allowed:.1e})"
