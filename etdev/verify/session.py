"""Sessions: series of calls of a method in eager PyTorch, which a .pte has to repeat."""

from __future__ import annotations

import operator
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from attrs import define, field

from etdev.edge.reference import Reference
from etdev.errors import VerifyError
from etdev.runtime.child import ChildResult
from etdev.schema.wording import counted
from etdev.upstream.sequences import SortedSequences
from etdev.verify.coverage import Recording
from etdev.verify.inputs import Samples
from etdev.verify.oracle import EagerCall, Oracle, agree
from etdev.verify.tolerance import Judgement, Tolerance, is_telling

# The first step whose sizes are between the bounds.
_BETWEEN = 3
# The time that looking for inputs that take another branch may have.
_SEARCH_S = 1.0


@define(eq=False)
class Session:
    """Consecutive calls of a method in eager PyTorch, each with the state that the last one left.

    A .pte has to repeat them in one loaded method.

    Args:
        reference: The method.
        oracle: Calls it, and the methods that share its state.
        given: Inputs of the first calls, which later ones are like; without any, the example's.
        tolerance: How near the .pte has to be.
        huge: Call it with huge floats, too.
        calls: The calls so far.
        samples: Makes fresh inputs.
        judgements: The judgements, by the id of a call, that something was not compared.
    """

    reference: Reference
    oracle: Oracle
    given: Sequence[Sequence[Any]] = ()
    tolerance: Tolerance = field(factory=Tolerance)
    huge: bool = True
    calls: list[EagerCall] = field(factory=list, init=False)
    samples: Samples = field(init=False)
    coverage: Recording = field(init=False)
    judgements: dict[int, Judgement] = field(factory=dict, init=False)
    _compared: dict[int, tuple[Sequence[Any], Judgement]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        example, _ = self.reference.example()
        like = list(self.given[-1]) if self.given else example
        self.samples = Samples(self.reference.program, like, self.huge)
        self.coverage = Recording(self.reference.program)

    @property
    def name(self) -> str:
        """Name of the method."""
        return self.reference.method.name

    @property
    def has_state(self) -> bool:
        """True if a call depends on those before it."""
        return bool(self.reference.state)

    def play(self, steps: int, resized: bool = False, draws: int = 0) -> Iterator[EagerCall]:
        """Call the method with the given inputs, and with fresh ones up to `steps`.

        With `resized`, each fresh call of a method with dynamic sizes is made twice, and the first
        one again at the end: sizes grow, shrink, and stay as they are after both. Two more calls
        are in sizes between the bounds. Without given inputs, as many as `draws` follow, see
        `Samples.draws`, and those that take a branch that no call has taken. Inputs that eager
        PyTorch refuses are left out.
        """
        for inputs in self.given:
            yield from self._call([inputs])
        for step in range(len(self.given), steps):
            yield from self._call(self.samples.attempts(step))
            if step and resized and self.samples.is_dynamic and self.calls:
                yield from self._repeat(self.calls[-1])
        if resized and self.samples.is_dynamic and len(self.given) < steps:
            for step in range(max(steps, _BETWEEN), max(steps, _BETWEEN) + 2):
                yield from self._call(self.samples.attempts(step))
        if not self.given:
            until = time.monotonic() + _SEARCH_S
            for turn, (attempts, rounded) in enumerate(self.samples.draws()):
                if turn < draws:
                    yield from self._call(attempts, drawn=rounded)
                elif not self.coverage.is_whole and time.monotonic() < until:
                    state = self.oracle.state(self.reference)
                    new = [inputs for inputs in attempts if self.coverage.is_new(inputs, state)]
                    yield from self._call(new, drawn=True)
        if len(self.calls) > max(steps, len(self.given)):
            yield from self._repeat(self.calls[0])

    def play_edges(self, all_values: bool) -> Iterator[EagerCall]:
        """Call the method with edge values, see `Samples.edges`."""
        for value, attempts in self.samples.edges(all_values):
            yield from self._call(attempts, edge=value)

    def _call(self, attempts: Iterable[Sequence[Any]], **how: Any) -> Iterator[EagerCall]:
        """Call the method with the first inputs that eager PyTorch takes, if it takes any."""
        for inputs in attempts:
            try:
                with self._checks(inputs):
                    call = self.oracle.call(self.reference, inputs, **how)
            except Exception:
                continue
            self.calls.append(call)
            if not call.edge:
                self.coverage.note(call.inputs, call.state)
            yield call
            return

    def _checks(self, inputs: Sequence[Any]) -> AbstractContextManager[Any]:
        """Return a context in which ops refuse what PyTorch gives no meaning, in fresh inputs."""
        known = (*self.given, self.samples.example)
        theirs = any(all(map(operator.is_, inputs, own)) for own in known)
        return nullcontext() if theirs or not self.samples.reads_sorted else SortedSequences()

    def _repeat(self, call: EagerCall) -> Iterator[EagerCall]:
        """Call the method with the inputs of an earlier call, whose values a state may change."""
        if self.has_state:
            yield from self._call([call.inputs])
        else:
            self.calls.append(call)
            yield call

    def require(self) -> None:
        """Reject a session without calls."""
        if not self.calls:
            which = "the given" if self.given else "its example"
            what = f"eager PyTorch can't run {which} inputs"
            raise VerifyError(f"method {self.name!r}", what, "give inputs that it takes")

    def problem(self, result: ChildResult, step: int, call: EagerCall) -> str | None:
        """Return how a call of the .pte departs from one in eager PyTorch."""
        if step >= len(result.values):
            return result.failure
        ran = result.values[step]
        results = [value for value in (*ran.outputs, *ran.inputs) if value is not None]
        # Another runner mostly gives the same results.
        known, judgement = self._compared.get(id(call), ((), Judgement()))
        if not known or not agree(results, known, tolerance=0.0):
            judgement = self.tolerance.judge(results, call)
            # A fresh input counts only if each op returns numbers for it.
            first = self.calls[0]
            fresh = call is not first and not call.edge
            if judgement.problem and fresh and call.meets_nan and not first.meets_nan:
                judgement = Judgement(left_out=_numbers(call), by_nan=True)
        if judgement != Judgement():
            self._compared[id(call)] = results, judgement
        if not judgement.problem and judgement != Judgement():
            self.judgements[id(call)] = judgement
        return judgement.problem

    @property
    def is_conclusive(self) -> bool:
        """True if the calls return values that a wrong program may not return.

        Those are finite numbers, and sizes of integers that differ from call to call.
        """
        values = [value for call in self.calls for value in call.outputs]
        sizes = {tuple(map(_size_of_integers, call.outputs)) for call in self.calls}
        return any(map(is_telling, values)) or len(sizes) > 1

    @property
    def doubt(self) -> str:
        """Why calls that agree show nothing; empty if they do."""
        calls = [call for call in self.calls if not call.edge]
        numbers = {id(call): _numbers(call) for call in calls}
        if numbers and numbers == {key: each.left_out for key, each in self.judgements.items()}:
            return "near ties decide all that it returns"
        return self.reference.doubt

    def unread(self, most: int) -> list[str]:
        """Return which of the first `most` tensors of state the last `most` calls do not read."""
        calls = [call for call in self.calls if not call.edge]
        names = list(calls[-1].state)[:most] if calls else []
        for call in calls[: -most - 1 : -1]:
            names = [name for name in names if not call.reads(name)]
        return names

    def remarks(self) -> Iterator[str]:
        """Say which results of the method were not compared with eager PyTorch's own."""
        known = list(self.judgements.values())
        if count := sum(judgement.left_out for judgement in known if not judgement.by_nan):
            yield (
                f"method {self.name!r}: left out {counted(count, 'number')} that PyTorch itself "
                f"changes if inputs and weights are off by {self.tolerance.relative:g}"
            )
        if count := sum(judgement.by_nan for judgement in known):
            yield (
                f"method {self.name!r}: {counted(count, 'call')} not compared, since an op returns "
                "NaN for numbers there"
            )
        if count := sum(judgement.by_float64 for judgement in known):
            yield (
                f"method {self.name!r}: {counted(count, 'call')} compared with PyTorch in float64, "
                "from which PyTorch departs in the model's own dtype"
            )


def session_of(
    reference: Reference,
    given: Sequence[Sequence[Any]],
    steps: int,
    resized: bool = False,
    draws: int = 0,
) -> Session:
    """Call a method by itself, as `Session.play` does.

    Raises:
        VerifyError: Eager PyTorch takes none of the inputs.
    """
    session = Session(reference, Oracle([reference]), given)
    list(session.play(steps, resized, draws))
    session.require()
    return session


def interleaved(playing: Mapping[str, Iterator[EagerCall]]) -> Iterator[tuple[str, EagerCall]]:
    """Yield the calls of several methods in a random order, which is always the same."""
    left, numbers = dict(playing), random.Random(0)
    while left:
        name = numbers.choice(list(left))
        if call := next(left[name], None):
            yield name, call
        else:
            del left[name]


def _numbers(call: EagerCall) -> int:
    """Return how many numbers a call returns."""
    return sum(torch.as_tensor(value).numel() for value in call.outputs)


def _size_of_integers(value: Any) -> Any:
    is_whole = isinstance(value, torch.Tensor) and not value.is_floating_point()
    return value.shape if is_whole else None
