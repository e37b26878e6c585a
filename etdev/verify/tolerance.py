"""Comparison of a .pte's outputs with those of eager PyTorch, and the errors that are tolerated.

    float64, complex128                   1e-9
    float32, complex64                    1e-4
    float16                               1e-2
    bfloat16                              3e-2
    int8 and other quantised ops          2e-2, and a step of an output that is quantised
    integers and bools                    none, and those that eager changes are left out

A tolerance is multiplied by the largest finite value of eager's output. Where values of about 1
cancel, what is left of them may be off by a hundredth of the tolerance, as far as it moves when
inputs and weights do. Integers that change when inputs and weights are off by the tolerance are
left out. Where eager itself is off, as some kernels are in float16, float64 decides.
A step is 1 if the output is int8 or uint8, and the scale of the op that dequantises it.
The coarsest dtype of all values in the method counts, because a float32 output may have been
bfloat16 before; so does a dtype that one of the method's backends rounds float32 to.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch.export import ExportedProgram

from etdev.errors import RunError
from etdev.graph.nodes import dtype_name, graph_modules, op_name
from etdev.upstream.trees import pytree

_RELATIVE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 3e-2,
    torch.complex128: 1e-9,
    torch.complex64: 1e-4,
}
_QUANTISED = 2e-2
# Some kernels take numbers below 1e-38 for 0, and lose sums of up to a hundred of them.
TINY = 1e-36
# A step in float32.
_ROUNDED = 1.001
_DEQUANTISER = "quantized_decomposed.dequantize_per_tensor.default"
_NAMESPACES = ("quantized_decomposed", "torchao")


@frozen
class OutputError:
    """The largest absolute error of one output, and the largest value that eager has for it."""

    max_error: float
    max_value: float

    def __str__(self) -> str:
        return f"max error {self.max_error:.3g} (largest value {self.max_value:.3g})"


@frozen
class Tolerance:
    """Errors that the outputs of one method may have.

    Args:
        relative: Allowed error of floating-point outputs, times the output's largest value.
        steps: Allowed error of int8 and uint8 outputs.
    """

    relative: float
    steps: int = 0

    def allowed(self, expected: torch.Tensor, step: float = 0.0) -> float:
        """Return the absolute error that an output may have, which has steps of this size."""
        if _is_whole(expected):
            return self.steps if expected.dtype in (torch.int8, torch.uint8) else 0
        finite = expected[expected.isfinite()].abs()
        largest = float(finite.max()) if finite.numel() else 0.0
        return max(self.relative * largest, _ROUNDED * step, TINY)

    @property
    def rounding(self) -> float:
        """The largest error of what is left of values of about 1 that cancel."""
        return self.relative * 1e-2


def tolerance_of(program: ExportedProgram, rounded: Collection[str] = ()) -> Tolerance:
    """Return the tolerance of a method."""
    nodes = [node for module in graph_modules(program.graph_module) for node in module.graph.nodes]
    quantised = any(str(node.target).partition(".")[0] in _NAMESPACES for node in nodes)
    values = pytree.tree_leaves([node.meta.get("val") for node in nodes])
    dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    dtypes.update(getattr(torch, name) for name in rounded)
    relative = max((_RELATIVE.get(dtype, 0.0) for dtype in dtypes), default=0.0)
    if quantised:
        relative = max(relative, _QUANTISED)
    return Tolerance(relative, int(quantised))


def steps_of(program: ExportedProgram, names: Iterable[Any]) -> list[float]:
    """Return the scales of the values that ops of a program dequantise; 0 for other values."""
    nodes = {node.name: node for node in program.graph.nodes}
    found = [nodes.get(name) for name in names]
    return [float(n.args[1]) if n and op_name(n) == _DEQUANTISER else 0.0 for n in found]


def compare(outputs: Sequence[Any], expected: Sequence[Any]) -> list[OutputError]:
    """Measure how far each output is from eager: infinitely far, if it has another shape."""
    if len(outputs) != len(expected):
        what = f"{len(outputs)} outputs against {len(expected)} of eager"
        raise RunError("check", what, "name the model that this .pte was lowered from")
    pairs = zip(map(torch.as_tensor, outputs), map(torch.as_tensor, expected), strict=True)
    return [_difference(output, wanted) for output, wanted in pairs]


def furthest(expected: Sequence[Any], runs: Iterable[Sequence[Any]]) -> list[float]:
    """Return how far outputs move in some runs, times four: a program rounds otherwise."""
    moved = [0.0] * len(expected)
    for outputs in runs:
        found = compare(outputs, expected)
        moved = [max(a, 4 * b.max_error) for a, b in zip(moved, found, strict=True)]
    return moved


def with_decided(
    values: Sequence[Any], expected: Sequence[Any], runs: Iterable[Sequence[Any]]
) -> tuple[list[Any], int]:
    """Replace undecided integers by eager's; return the values, and how many were undecided.

    An integer is undecided if it is another in one of the runs, as the place of a maximum is whose
    second is close to it.
    """
    pairs = [tuple(map(torch.as_tensor, pair)) for pair in zip(values, expected, strict=True)]
    open_ = [a.shape == b.shape and a.dtype == b.dtype and _is_whole(b) for a, b in pairs]
    if all(torch.equal(a, b) for (a, b), known in zip(pairs, open_, strict=True) if known):
        return list(values), 0
    masks = [torch.zeros_like(b, dtype=torch.bool) for _, b in pairs]
    for outputs in runs:
        for mask, made, (_, b) in zip(masks, map(torch.as_tensor, outputs), pairs, strict=True):
            mask |= made != b if made.shape == b.shape else True
    decided = [
        torch.where(mask, b, a) if known else value
        for value, mask, (a, b), known in zip(values, masks, pairs, open_, strict=True)
    ]
    return decided, sum(int(m.sum()) for m, known in zip(masks, open_, strict=True) if known)


def _is_whole(value: torch.Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex())


def mismatch(
    values: Sequence[Any],
    expected: Sequence[Any],
    tolerance: Tolerance,
    kind: str = "output",
    steps: Sequence[float] = (),
) -> str | None:
    """Describe how values depart from eager PyTorch's; None if they are within the tolerance.

    Each may be off by its step, if there are some.
    """
    values = [value for value in values if value is not None]
    if len(values) != len(expected):
        return f"{len(values)} {kind}s against {len(expected)} of eager PyTorch"
    for index, (value, wanted) in enumerate(zip(values, expected, strict=True)):
        step = steps[index] if index < len(steps) else 0.0
        if problem := _mismatch(value, wanted, tolerance, step):
            return f"{kind} {index} {problem}"
    return None


def _mismatch(value: Any, wanted: Any, tolerance: Tolerance, step: float) -> str | None:
    if isinstance(wanted, str) or isinstance(value, str):
        return None if value == wanted else f"is {value!r}, in eager PyTorch {wanted!r}"
    a, b = torch.as_tensor(value), torch.as_tensor(wanted)
    tensors = isinstance(value, torch.Tensor) and isinstance(wanted, torch.Tensor)
    if a.shape != b.shape:
        return f"has shape {tuple(a.shape)}, in eager PyTorch {tuple(b.shape)}"
    if tensors and a.dtype != b.dtype:
        return f"is {dtype_name(a.dtype)}, in eager PyTorch {dtype_name(b.dtype)}"
    difference, allowed = _difference(a, b), tolerance.allowed(b, step)
    # False if the error is NaN.
    if difference.max_error <= allowed:
        return None
    if not math.isfinite(difference.max_error) and (problem := _not_finite(a, b)):
        return problem
    largest = f"largest value {difference.max_value:.3g}"
    return f"is off by {difference.max_error:.3g} ({largest}, tolerance {allowed:.1e})"


def _not_finite(a: torch.Tensor, b: torch.Tensor) -> str | None:
    """Say where one of two tensors first has a number, and the other NaN or an infinity."""
    finite = a.isfinite() & b.isfinite()
    places = (~(finite | (a == b) | (a.isnan() & b.isnan()))).nonzero().tolist()
    if not places:
        return None
    first = tuple(places[0])
    value, wanted = (f"{x[first].item():.3g}".replace("nan", "NaN") for x in (a, b))
    where = f" at {places[0]}" if first else ""
    others = f" ({len(places)} such values)" if len(places) > 1 else ""
    return f"is {value}{where}, in eager PyTorch {wanted}{others}"


def _difference(a: torch.Tensor, b: torch.Tensor) -> OutputError:
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    a, b = (value.detach().to("cpu", wide) for value in (a, b))
    if a.shape != b.shape or not b.numel():
        return OutputError(0.0 if a.shape == b.shape else math.inf, 0.0)
    # Equal infinities differ by nan and are not an error; a nan on one side alone is.
    error = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
    return OutputError(float(error.max()), float(b.abs().max()))
