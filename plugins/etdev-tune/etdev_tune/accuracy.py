"""Accuracy of a candidate: the difference between its outputs and eager PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from etdev.errors import RunError
from etdev.runtime.compare import compare
from etdev_tune.cases import Case

# Errors of outputs without a larger value are relative to this one, as in runtime/compare.py.
_SMALLEST = 1e-3


def error_of(case: Case, outputs: Sequence[Sequence[Any]]) -> float:
    """Return the largest error of any output, relative to its largest finite value in PyTorch.

    Integers and bools have to be equal, except for one step of int8 and uint8, since quantised
    models round. The error is infinite for an output that is missing, has another shape or dtype,
    or is NaN on one side alone.

    Args:
        case: The calls, with eager PyTorch's outputs.
        outputs: Outputs of the candidate, by call.
    """
    errors = [0.0]
    if len(outputs) != len(case.calls):
        return math.inf
    for given, call in zip(outputs, case.calls, strict=True):
        own = [value for value in given if value is not None]
        wanted = [value for value in call.outputs if value is not None]
        if len(own) != len(wanted):
            return math.inf
        errors += [_error(a, b) for a, b in zip(own, wanted, strict=True)]
    return max(errors)


def _error(value: Any, wanted: Any) -> float:
    if isinstance(value, str) or isinstance(wanted, str):
        return 0.0 if value == wanted else math.inf
    a, b = torch.as_tensor(value), torch.as_tensor(wanted)
    both = isinstance(value, torch.Tensor) and isinstance(wanted, torch.Tensor)
    if both and a.dtype != b.dtype:
        return math.inf
    try:
        (difference,) = compare([a], [b])
    except RunError:
        return math.inf
    if math.isnan(difference.max_error):
        return math.inf
    if not (b.is_floating_point() or b.is_complex()):
        steps = 1 if b.dtype in (torch.int8, torch.uint8) else 0
        return 0.0 if difference.max_error <= steps else math.inf
    finite = b.detach()[b.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    return difference.max_error / max(largest, _SMALLEST)
