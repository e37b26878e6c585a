"""Attempts to build candidates, and their outcomes in words."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from etdev.errors import TuneError
from etdev_tune.candidate import Candidate
from etdev_tune.contest import MARGIN, is_clear
from etdev_tune.exchange import UNTRIED, Failure
from etdev_tune.record import Record
from etdev_tune.report import Estimate


@frozen(eq=False)
class Attempt:
    """A candidate with its record, or with the reason why it was not built.

    Args:
        candidate: The candidate.
        outcome: The record of its build, or the failure.
    """

    candidate: Candidate
    outcome: Record | Failure

    @property
    def record(self) -> Record | None:
        """Record of the build, if there is one."""
        return self.outcome if isinstance(self.outcome, Record) else None

    @property
    def is_untried(self) -> bool:
        """Return True if the budget was spent before the candidate was measured."""
        if isinstance(self.outcome, Failure):
            return self.outcome.kind == UNTRIED
        return not self.outcome.rounds and not self.outcome.failure


def reason(ratio: Estimate, best: str) -> str:
    """Say why a candidate of this cost replaces the best one, or doesn't."""
    if is_clear(ratio):
        return f"taken: {1 - ratio.value:.0%} less than {best}"
    if ratio.low > 1 - MARGIN:
        more = f"{ratio.value - 1:.0%} more than" if ratio.value > 1 + MARGIN else "no better than"
        return f"not taken: {more} {best}"
    return f"not taken: can't be told apart from {best}"


def hopeless(attempts: Sequence[Attempt], tolerance: float) -> TuneError:
    """Make the error for a search without a candidate that runs within the tolerance."""
    errors = {a.candidate.name: a.record.error for a in attempts if a.record}
    if not errors or min(errors.values()) == float("inf"):
        faults = [f"{a.candidate.name}: {_fault(a)}" for a in attempts]
        what = f"none runs ({'; '.join(faults[:4])})"
        cure = "see etdev check"
        if any(a.is_untried for a in attempts):
            cure = "give more with --budget; what was measured is kept"
        return TuneError("candidates", what, cure)
    name = min(errors, key=lambda known: errors[known])
    what = f"no candidate is within {tolerance:g}: the closest, {name}, is off by"
    cure = f"allow at least --tolerance {errors[name]:.1e}"
    return TuneError("tolerance", f"{what} {errors[name]:.2g}", cure)


def _fault(attempt: Attempt) -> str:
    known = attempt.record
    return str(known.failure or "wrong") if known else str(attempt.outcome)
