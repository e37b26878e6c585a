"""Comparisons of candidates, which are measured in turn until one is better beyond doubt."""

from __future__ import annotations

import time

from attrs import define, field
from attrs.validators import gt

from etdev_tune.measurer import Measurer
from etdev_tune.record import SIZE, Record
from etdev_tune.report import Confirmation, Estimate, Limits

# A difference below 1 % does not justify another plan.
MARGIN = 0.01
# The fewest and the most rounds of a comparison, and the most of one about a large win, which a
# busy machine may hide.
_ROUNDS, _LONGEST = (3, 6), 16
# Costs, as multiples of the best one's, of a candidate that is looked at once, and of a large win.
_HOPELESS, _PROMISING = 2.0, 0.9
# The fewest processes of a comparison.
LEAST = 2 * _ROUNDS[0]
# The fewest and the most pairs of a confirmation; six in a row on one side happen by chance once
# in 64.
_CONFIRMATION = (8, 16)
# The fewest processes of a confirmation, for which the budget has to last after the search.
RESERVE = 2 * _CONFIRMATION[0]
# Share of the budget by which a confirmation may exceed it: the search can only estimate what to
# leave for it, and an unconfirmed win is lost.
_OVERRUN = 0.1
_EQUAL = Estimate(1.0, 1.0, 1.0)


@define(eq=False)
class Clock:
    """A time budget in seconds, which begins when this is made."""

    budget_s: float = field(validator=gt(0))
    _start: float = field(factory=time.monotonic)

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def allows(self, needed: float) -> bool:
        """Return True if that much time is left."""
        return needed <= self.budget_s - self.spent


@define(eq=False)
class Comparison:
    """A comparison of candidates, each measured in rounds beside the first one that ran.

    Args:
        plain: The record of that one, which is the untuned plan's if that runs.
    """

    measurer: Measurer
    objective: str
    limits: Limits
    clock: Clock
    plain: Record | None = None

    def measure(self, record: Record, best: Estimate | None) -> None:
        """Measure a candidate until it is clear whether it is better than the best one.

        `best` is the best one's cost as `cost` returns it; None without one.
        """
        beside = [self.plain or record, record]
        least, most = _ROUNDS
        for done in range(1, _LONGEST + 1):
            self.measurer.round(beside, "search", done - 1)
            if self.plain is None and not record.failure:
                self.plain = record
            cost = self.cost(record)
            if cost is None or record is self.plain or (best and cost.low > _HOPELESS * best.value):
                return
            if done >= least and (self._is_settled(record, cost, best) or not self._lasts(2)):
                return
            if done >= most and best and cost.value > _PROMISING * best.value:
                return

    def cost(self, record: Record) -> Estimate | None:
        """Return the cost of a record as a multiple of the first one's; None for a failure."""
        return record.against(self.plain, self.objective) if self.plain else None

    def is_better(self, cost: Estimate, best: Estimate = _EQUAL) -> bool:
        """Return True if a cost is clearly below the best one; sizes are exact."""
        return is_clear(cost, best, 0.0 if self.objective == SIZE else MARGIN)

    def can_confirm(self) -> bool:
        """Return True if the budget lasts for the fewest rounds of a confirmation."""
        return self._lasts(0, _OVERRUN)

    def confirm(self, winner: Record, name: str, other: Record, against: str) -> Confirmation:
        """Measure two records in fresh processes, in rounds that the search has not seen.

        The names are those of their candidates.
        """
        least, most = _CONFIRMATION
        ratio, rounds = None, 0
        session = self.measurer.session_of([other, winner], "confirmation")
        while rounds < most and (rounds < least or self._lasts(2 - RESERVE, _OVERRUN)):
            self.measurer.round([other, winner], "confirmation", rounds)
            rounds += 1
            ratio = winner.against(other, self.objective, session)
            if ratio is None or not winner.admitted(self.limits):
                return Confirmation(name, against, None, rounds, False)
            # Looking after every round would find wins by chance.
            if rounds == least and (self.is_better(ratio) or ratio.low > 1):
                break
        return Confirmation(name, against, ratio, rounds, bool(ratio and self.is_better(ratio)))

    def _is_settled(self, record: Record, cost: Estimate, best: Estimate | None) -> bool:
        """Return True if more rounds would not change the choice."""
        if best is None or not record.admitted(self.limits):
            return True
        return self.is_better(cost, best) or cost.low > (1 - MARGIN) * best.value

    def _lasts(self, processes: int, overrun: float = 0.0) -> bool:
        """Return True if the budget lasts for that many processes and a confirmation."""
        needed = (processes + RESERVE) * (self.measurer.usual_s or 0.0)
        return self.clock.allows(needed - overrun * self.clock.budget_s)


def is_clear(cost: Estimate, best: Estimate = _EQUAL, margin: float = MARGIN) -> bool:
    """Return True if a cost is lower by more than the margin, and its whole interval is."""
    return cost.value < (1 - margin) * best.value and cost.high < best.value
