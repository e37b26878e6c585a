"""Contests: candidates measured in turn until they can be told apart."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from attrs import frozen

from etdev_tune.clock import Clock
from etdev_tune.measurer import Measurer
from etdev_tune.record import Record
from etdev_tune.report import Estimate

# A difference below 1 % does not justify another plan.
MARGIN = 0.01
# Rounds of a race and of a duel: the fewest, and the most.
_RACE = (3, 6)
_DUEL = (3, 7)
# On a busy machine a duel goes on where so much may be won, up to so many rounds.
_PROMISING, _LONGEST = 0.9, 16
# Processes that a duel takes at least.
LEAST_OF_DUEL = 2 * _DUEL[0]


@frozen(eq=False)
class Contest:
    """Tells candidates apart by rounds in which all are measured.

    Args:
        measurer: Measures them.
        objective: What counts.
        tolerance: Largest error.
        clock: The budget; None for as long as it takes.
        reserve: Processes of the budget that are kept for what comes after the contests.
    """

    measurer: Measurer
    objective: str
    tolerance: float
    clock: Clock | None = None
    reserve: int = 0

    def lasts(self, processes: int, overrun: float = 0.0) -> bool:
        """Whether the budget lasts for so many processes.

        Args:
            processes: How many.
            overrun: What part of the budget they may take beyond it.
        """
        seconds = processes * (self.measurer.usual_s or 0.0)
        clock = self.clock
        return clock is None or clock.allows(seconds - overrun * clock.budget_s)

    def race(self, records: Sequence[Record], session: str) -> Record | None:
        """Measure many, and leave out who is clearly behind; returns the best.

        Those that fail or are outside the tolerance are measured once, as a finding. Once the
        budget is spent, no others are measured than it takes to have one within the tolerance.
        """
        racing = list({record.build.digest: record for record in records}.values())
        least, most = _RACE
        for number in range(most):
            # What is told apart after the first rounds may leave no time for what comes next.
            rest = LEAST_OF_DUEL + self.reserve if number >= least else 0
            if number and not self.lasts(len(racing) + rest):
                break
            enough = None if number else functools.partial(self._enough, racing)
            self.measurer.round(racing, session, number, enough)
            racing = [record for record in racing if record.admitted(self.tolerance)]
            if len(racing) > 1 and number + 1 >= least:
                best = self.best(racing)
                racing = [r for r in racing if r is best or not self._behind(r, best)]
            if not racing or (len(racing) == 1 and number + 1 >= least):
                break
        return self.best([record for record in records if record.admitted(self.tolerance)])

    def duel(self, challenger: Record, holder: Record, session: str) -> Estimate | None:
        """Measure two until one is ahead; the challenger's cost as a multiple of the holder's.

        If the budget wouldn't last for more rounds and the reserve, they can't be told apart.
        """
        least, most = _DUEL
        for number in range(_LONGEST):
            self.measurer.round([holder, challenger], session, number)
            ratio = challenger.against(holder, self.objective)
            if ratio is None or not challenger.admitted(self.tolerance):
                return None
            decided = is_clear(ratio) or ratio.low > 1 - MARGIN
            if number + 1 >= least and (decided or not self.lasts(2 + self.reserve)):
                break
            if number + 1 >= most and ratio.value > _PROMISING:
                break
        return ratio

    def best(self, records: Sequence[Record]) -> Record | None:
        """Who has the lowest cost; of equal ones the first."""
        return min(records, key=self.cost, default=None)

    def cost(self, record: Record) -> float:
        """What the objective says of one."""
        if self.objective == "size":
            return float(record.build.size_bytes)
        if self.objective == "memory":
            return float(record.memory_bytes or record.build.arena_bytes)
        latency = record.latency
        return latency.value if latency else float("inf")

    def _enough(self, records: Sequence[Record]) -> bool:
        """Whether no more can be measured, and something will do."""
        return not self.lasts(1) and any(record.admitted(self.tolerance) for record in records)

    def _behind(self, record: Record, best: Record | None) -> bool:
        ratio = record.against(best, self.objective) if best else None
        return ratio is None or ratio.low > 1


def is_clear(ratio: Estimate) -> bool:
    """Whether a ratio is a win that the whole interval agrees with."""
    return ratio.value < 1 - MARGIN and ratio.high < 1
