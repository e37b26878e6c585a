"""Calls of a method that a .pte has to repeat, and which of their results can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import torch
from attrs import field, frozen

from etdev.edge.reference import DOUBT
from etdev.pte.artifact import MethodArtifact
from etdev.runtime.child import ChildResult
from etdev.schema.wording import counted
from etdev.verify.oracle import EagerCall, Session
from etdev.verify.tolerance import Tolerance, furthest, mismatch, with_decided


@frozen(eq=False)
class Replay:
    """Calls of a method in eager PyTorch that the .pte has to repeat.

    Args:
        undecided: The number of integers that were left out of a call, by its id.
        inexact: The ids of calls in which eager PyTorch itself departs from float64.
    """

    facts: MethodArtifact
    session: Session
    tolerance: Tolerance
    steps: Sequence[float]
    undecided: dict[int, int] = field(factory=dict, init=False)
    inexact: set[int] = field(factory=set, init=False)

    def problem(self, outcome: ChildResult, step: int, call: EagerCall) -> str | None:
        """Return how a call departs from eager PyTorch."""
        if step >= len(outcome.values):
            return outcome.failure
        ran = outcome.values[step]
        outputs = [value for value in ran.outputs if value is not None]
        problem = self._departure(outputs, call)
        return problem or mismatch(ran.inputs, call.after, self.tolerance, "input after the call,")

    def _departure(self, outputs: Sequence[Any], call: EagerCall) -> str | None:
        """Return how outputs depart from eager PyTorch's, as far as those are determined."""
        problem = mismatch(outputs, call.outputs, self.tolerance, steps=self.steps)
        if problem is None or call.edge or len(outputs) != len(call.outputs):
            return problem
        most, again = self.tolerance.rounding, self.session.perturbed
        moved = (min(off, most) for off in furthest(call.outputs, again(call, most)))
        steps = list(map(max, zip_longest(self.steps, moved, fillvalue=0.0)))
        runs = again(call, self.tolerance.relative, tied=True)
        decided, count = with_decided(outputs, call.outputs, runs)
        if problem := mismatch(decided, call.outputs, self.tolerance, steps=steps):
            exact = self.session.exact(call)
            if not exact or mismatch(decided, exact, self.tolerance, steps=steps):
                return problem
            self.inexact.add(id(call))
        if count:
            self.undecided[id(call)] = count
        return None

    @property
    def doubt(self) -> str:
        """Why calls that agree show nothing; empty if they do."""
        calls = [call for call in self.session.calls if not call.edge]
        sizes = {id(call): sum(torch.as_tensor(v).numel() for v in call.outputs) for call in calls}
        if calls and sizes == self.undecided:
            return "near ties decide all that it returns"
        return str(self.session.reference.program.graph_module.meta.get(DOUBT, ""))

    def remarks(self) -> Iterator[str]:
        """Say which results of the method were not compared with eager PyTorch's own."""
        if count := sum(self.undecided.values()):
            yield (
                f"method {self.facts.name!r}: left out {counted(count, 'integer')} that PyTorch "
                f"itself changes if inputs and weights are off by {self.tolerance.relative:g}"
            )
        if self.inexact:
            yield (
                f"method {self.facts.name!r}: {counted(len(self.inexact), 'call')} compared with "
                "PyTorch in float64, from which PyTorch departs in the model's own dtype"
            )
