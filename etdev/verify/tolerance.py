"""The nearness that values of a .pte must have to PyTorch's: all rules, and the numbers in them.

A floating-point output may be off by the largest of

- the tolerance of the method's coarsest dtype (see etdev/schema/dtypes.py) times the scale at that
  place. All values of the method count for the dtype, because a float32 output may have been
  bfloat16 before, and so does a dtype that one of its backends rounds float32 to. Quantised methods
  have at least `QUANTISED`. A user may give another number.
- a step, if the output was dequantised: the scale of that op.
- as far as the number itself moves under perturbations of inputs and weights, but no more than the
  tolerance times the output's largest value, unless inputs are drawn, or an op takes equal values
  in an order that PyTorch leaves open.
- as far as a few units in the last place of inputs and weights move the number, as behind a layer
  norm of values that are far from 0, or in the inverse of a matrix that has none. Such a
  perturbation may also decide the number: it may be the other one of two that nearly tie.
- after cancellation of values near 1, up to 1 % of the tolerance, and no more than the output
  changes under a perturbation.
- `TINY`.

The scale is the largest value of the output, without fills of masks such as -1e9. Where an output
has values of several magnitudes, such as coordinates beside scores, it is the largest value of the
row and of the column.

int8 and uint8 outputs of a quantised method may be off by 1. Other integers and bools have to be
equal, but those that eager PyTorch changes under a perturbation of the size of the tolerance are
left out. Where eager itself is off, as some kernels are in float16, float64 decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from attrs import evolve, frozen
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.nodes import graph_modules, op_name
from etdev.schema.dtypes import INTEGER, dtype_name, dtype_of
from etdev.upstream.trees import pytree
from etdev.verify.inputs import open_ties
from etdev.verify.oracle import EagerCall
from etdev.verify.output_error import OutputError, errors_of

QUANTISED = 2e-2
# Some kernels take numbers below 1e-38 for 0, and lose sums of up to a hundred of them.
TINY = 1e-36
# A number that is so much larger than the smallest tenth is a fill, if it is as large as that; most
# of an output may be.
_FAR, _FILL = 1e3, 1e4
# Numbers are of several magnitudes if the largest is more than this times as large as the smallest
# tenth; of normal ones it is 35 times as large.
_MIXED, _SAMPLES = 100.0, 4096
# Perturbations are this part of the tolerance, since what moves counts four times.
_PARTS = 4
# Numbers that quantisers round otherwise are spread over an output by chance, so that each may be
# this many times as far off as they are on average.
_SPREAD = 1.5
# A step in float32.
_ROUNDED = 1.001
_DEQUANTISER = "quantized_decomposed.dequantize_per_tensor.default"
_NAMESPACES = ("quantized_decomposed", "torchao")
# Weights that are stored in integers are computed with as floats.
_OF_WEIGHTS = ("dequantize", "embedding")


@frozen
class Judgement:
    """The comparison of a call with the oracle.

    Args:
        problem: How the call departs; None if it doesn't.
        left_out: How many numbers were not compared, since rounding decides them.
        by_float64: Eager PyTorch itself departs from float64, which decided.
        by_nan: Nothing was compared, since an op returns NaN for numbers.
    """

    problem: str | None = None
    left_out: int = 0
    by_float64: bool = False
    by_nan: bool = False


@frozen
class Tolerance:
    """Errors that the outputs of one method may have.

    Args:
        relative: Allowed error of floating-point outputs, times the scale at each place.
        steps: Allowed error of int8 and uint8 outputs.
        slack: For each output, the error that it may have whatever its values are.
        free: Floats may be off as far as perturbations move them, without a limit.
        rounds: Floats may be off as far as rounding moves them; not if a user gave a tolerance.
    """

    relative: float = 0.0
    steps: int = 0
    slack: Sequence[float] = ()
    free: bool = False
    rounds: bool = False

    @classmethod
    def of(
        cls,
        program: ExportedProgram,
        rounded: Collection[str] = (),
        relative: float | None = None,
    ) -> Tolerance:
        """Return the tolerance of a method.

        Args:
            program: The exported program.
            rounded: Names of the dtypes that backends round float32 to.
            relative: The number of a user, instead of that of the dtypes.

        Raises:
            EtdevError: A value has a dtype without a tolerance.
        """
        graphs = [module.graph for module in graph_modules(program.graph_module)]
        nodes = [node for graph in graphs for node in graph.nodes]
        quantised = any(map(_quantises, nodes))
        free = bool(open_ties(program))
        if relative is not None:
            return cls(relative, int(quantised), free=free)
        values = pytree.tree_leaves([node.meta.get("val") for node in nodes])
        dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor)}
        known = [dtype_of(dtype).tolerance for dtype in (*dtypes, *rounded)]
        outputs = [name for name in program.graph_signature.user_outputs if name is not None]
        return cls(
            max((*known, QUANTISED if quantised else 0.0)),
            int(quantised),
            steps_of(program, outputs),
            free,
            rounds=True,
        )

    @property
    def rounding(self) -> float:
        """The largest error of what is left of values of about 1 that cancel."""
        return self.relative * 1e-2

    def allowed(
        self,
        expected: torch.Tensor,
        slack: float = 0.0,
        moved: torch.Tensor | None = None,
        rounded: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the absolute error that each number of an output may have.

        Args:
            expected: The output in eager PyTorch.
            slack: An error that each may have.
            moved: How far each moves under perturbations of the size of the tolerance.
            rounded: How far each moves by rounding.
        """
        if _is_whole(expected):
            known = dtype_of(expected.dtype)
            steps = self.steps if (known.kind, known.size_bytes) == (INTEGER, 1) else 0
            return torch.full(expected.shape, float(steps), dtype=torch.float64)
        sizes = torch.where(expected.isfinite(), expected.detach().cpu(), 0).abs().double()
        most = self.relative * (sizes.max() if sizes.numel() else torch.tensor(0.0))
        own = self.relative * _scale(sizes, by_place=not self.steps)
        if moved is not None:
            own = own.maximum(moved if self.free else moved.minimum(most))
            # What is left of a cancellation moves by chance, here or at another place.
            slack = max(slack, min(float(moved.max()) if moved.numel() else 0.0, self.rounding))
        if rounded is not None:
            own = own.maximum(rounded)
        return own.clamp(min=max(slack, TINY))

    def judge(self, results: Sequence[Any], call: EagerCall) -> Judgement:
        """Compare the results of a call by all rules, those that call PyTorch again last."""
        expected, outputs = call.results, len(call.outputs)
        rules = evolve(self, free=self.free or call.drawn)
        problem = rules.mismatch(results, expected, outputs=outputs)
        final = len(results) != len(expected) or (bool(call.edge) and not self.free)
        if problem is None or final:
            return Judgement(problem)
        decided, left_out = self._decided(results, call)
        moved: Sequence[torch.Tensor] = ()
        # Two runs tell nearly always.
        for moved in call.moved(self.relative / _PARTS):
            if (problem := rules.mismatch(decided, expected, moved, outputs)) is None:
                return Judgement(None, left_out)
        rounded = call.rounded() if self.rounds else []
        if self.steps:
            rounded = [far.clamp(min=_SPREAD * float(far.nanmean())) for far in rounded]
        if (problem := rules.mismatch(decided, expected, moved, outputs, rounded)) is None:
            return Judgement(None, left_out)
        for other in call.nearby() if self.rounds else ():
            decided, count = self._jumped(decided, other, expected)
            left_out += count
            if count and not rules.mismatch(decided, expected, moved, outputs, rounded):
                return Judgement(None, left_out)
        exact = call.exact()
        by_float64 = bool(exact) and not rules.mismatch(decided, exact, moved, outputs, rounded)
        return Judgement(None if by_float64 else problem, left_out, by_float64)

    def mismatch(
        self,
        values: Sequence[Any],
        expected: Sequence[Any],
        moved: Sequence[torch.Tensor] = (),
        outputs: int | None = None,
        rounded: Sequence[torch.Tensor] = (),
    ) -> str | None:
        """Describe how values depart from eager PyTorch's; None if they are near enough.

        Those behind a number of outputs are inputs after the call.
        """
        values = [value for value in values if value is not None]
        last = len(expected) if outputs is None else outputs
        if extra := len(values) - len(expected):
            return f"{last + extra} outputs against {last} of eager PyTorch"
        for index, (value, wanted) in enumerate(zip(values, expected, strict=True)):
            slack = self.slack[index] if index < len(self.slack) else 0.0
            far, near = (own[index] if index < len(own) else None for own in (moved, rounded))
            if problem := self.difference(value, wanted, slack, far, near):
                behind = index - last
                place = f"output {index}" if behind < 0 else f"input after the call, {behind}"
                return f"{place} {problem}"
        return None

    def difference(
        self,
        value: Any,
        wanted: Any,
        slack: float = 0.0,
        moved: torch.Tensor | None = None,
        rounded: torch.Tensor | None = None,
    ) -> str | None:
        """Describe how one output departs from eager PyTorch's; None if it is near enough."""
        if isinstance(wanted, str) or isinstance(value, str):
            return None if value == wanted else f"is {value!r}, in eager PyTorch {wanted!r}"
        a, b = torch.as_tensor(value), torch.as_tensor(wanted)
        tensors = isinstance(value, torch.Tensor) and isinstance(wanted, torch.Tensor)
        if a.shape != b.shape:
            return f"has shape {tuple(a.shape)}, in eager PyTorch {tuple(b.shape)}"
        if tensors and a.dtype != b.dtype:
            return f"is {dtype_name(a.dtype)}, in eager PyTorch {dtype_name(b.dtype)}"
        off, allowed = errors_of(a, b), self.allowed(b, slack, moved, rounded)
        # False where the error is NaN.
        wrong = ~(off <= allowed)
        if not wrong.any():
            return None
        if not bool(off.isfinite().all()) and (problem := _not_finite(a, b)):
            return problem
        place = int((off / allowed.clamp(min=TINY)).flatten().argmax())
        error, most = off.flatten()[place], allowed.flatten()[place]
        index = list(map(int, torch.unravel_index(torch.tensor(place), b.shape)))
        where = f" at {index}" if index else ""
        largest = f"largest value {OutputError.of(a, b).max_value:.3g}"
        return f"is off by {error:.3g}{where} ({largest}, tolerance {most:.1e})"

    def _decided(self, results: Sequence[Any], call: EagerCall) -> tuple[list[Any], int]:
        """Replace undecided integers by eager's; return the results, and how many were replaced."""
        decided = list(map(torch.as_tensor, results))
        expected = list(map(torch.as_tensor, call.results))
        integers = [
            place
            for place, (a, b) in enumerate(zip(decided, expected, strict=True))
            if a.shape == b.shape and a.dtype == b.dtype and _is_whole(b)
        ]
        for masks in call.undecided(self.relative, bool(self.steps)):
            # Enough of them were seen.
            if all((masks[n] | (decided[n] == expected[n])).all() for n in integers):
                break
        for place in integers:
            decided[place] = torch.where(masks[place], expected[place], decided[place])
        return decided, sum(int(masks[place].sum()) for place in integers)

    def _jumped(
        self, results: Sequence[Any], other: Sequence[Any], expected: Sequence[Any]
    ) -> tuple[list[Any], int]:
        """Replace the numbers that another eager call gives by eager's; return how many were."""
        decided, count = list(results), 0
        for place, values in enumerate(zip(results, other, expected, strict=True)):
            own, near, wanted = map(torch.as_tensor, values)
            if own.shape == near.shape == wanted.shape and own.dtype == wanted.dtype:
                jumped = errors_of(own, near) <= self.allowed(near)
                jumped &= errors_of(own, wanted) > self.allowed(wanted)
                decided[place] = torch.where(jumped, wanted, own)
                count += int(jumped.sum())
        return decided, count


def _quantises(node: Node) -> bool:
    """Return True if a node rounds values to integers at run time."""
    namespace, _, op = str(node.target).partition(".")
    return namespace in _NAMESPACES and not op.startswith(_OF_WEIGHTS)


def steps_of(program: ExportedProgram, names: Iterable[Any]) -> list[float]:
    """Return the step between the values that an op of a program dequantises; 0 for others."""
    nodes = {node.name: node for node in program.graph.nodes}
    found = [nodes.get(name) for name in names]
    return [_ROUNDED * n.args[1] if n and op_name(n) == _DEQUANTISER else 0.0 for n in found]


def _scale(sizes: torch.Tensor, by_place: bool) -> torch.Tensor:
    """Return the value that the error of each number is compared with, given absolute values."""
    flat = sizes.flatten()
    # Some of many, since they are sorted.
    known = flat[flat > 0][:: max(1, flat.numel() // _SAMPLES)].sort().values
    if not known.numel():
        return sizes
    fills = sizes >= max(_FILL, _FAR * float(known[known.numel() // 10]))
    others = sizes.masked_fill(fills, 0.0)
    largest = others.max()
    if not by_place or largest <= _MIXED * float(known[known.numel() // 10]):
        return torch.where(fills, sizes, largest)
    if sizes.dim() < 2:
        return sizes
    rows, columns = others.amax(-1, keepdim=True), others.flatten(0, -2).amax(0)
    return torch.where(fills, sizes, rows.minimum(columns))


def is_telling(value: Any) -> bool:
    """Return True if an output has a finite number that no kernel may take for another one."""
    numbers = torch.as_tensor(value)
    finite = numbers[numbers.isfinite()].to(torch.complex128).abs()
    return bool(((finite == 0) | (finite >= TINY)).any())


def _is_whole(value: torch.Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex())


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
