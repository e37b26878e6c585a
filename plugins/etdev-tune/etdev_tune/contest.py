"""Contests between candidates, which are measured in turn until one is faster beyond doubt."""

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
# The fewest and the most rounds of a race and of a duel.
_RACE = (3, 6)
_DUEL = (3, 7)
# On a busy machine, a duel about at least this much goes on for up to that many rounds.
_PROMISING, _LONGEST = 0.9, 16
# The fewest processes of a duel.
LEAST_OF_DUEL = 2 * _DUEL[0]


@frozen(eq=False)
class Contest:
    """Comparisons of candidates by rounds in which all of them are measured.

    Args:
        measurer: Measures candidates.
        objective: `latency`, `size` or `memory`.
        tolerance: Largest error.
        clock: The budget; None for no limit.
        reserve: Processes for which the budget has to last after the contests.
    """

    measurer: Measurer
    objective: str
    tolerance: float
    clock: Clock | None = None
    reserve: int = 0

    def lasts(self, processes: int, overrun: float = 0.0) -> bool:
        """Return True if the budget lasts for that many processes.

        Args:
            processes: Number of processes.
            overrun: Share of the budget by which they may exceed it.
        """
        seconds = processes * (self.measurer.usual_s or 0.0)
        clock = self.clock
        return clock is None or clock.allows(seconds - overrun * clock.budget_s)

    def race(self, records: Sequence[Record], session: str) -> Record | None:
        """Measure many candidates, drop those that are clearly behind, and return the best.

        Candidates that fail or exceed the tolerance are measured once, as a finding. Once the
        budget is spent, candidates are measured only until one is within the tolerance.
        """
        racing = list({record.build.digest: record for record in records}.values())
        least, most = _RACE
        for number in range(most):
            # Further rounds may leave no time for the duels that follow.
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
        """Measure two candidates until one is ahead, or the budget lasts for the reserve alone.

        Returns:
            The challenger's cost as a multiple of the holder's; None if the challenger fails.
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
        """Return the record of the lowest cost; of equal ones the first."""
        return min(records, key=self.cost, default=None)

    def cost(self, record: Record) -> float:
        """Return the cost of a record by the objective."""
        if self.objective == "size":
            return float(record.build.size_bytes)
        if self.objective == "memory":
            return float(record.memory_bytes or record.build.arena_bytes)
        latency = record.latency
        return latency.value if latency else float("inf")

    def _enough(self, records: Sequence[Record]) -> bool:
        """Return True if the budget is spent, and a record is within the tolerance."""
        return not self.lasts(1) and any(record.admitted(self.tolerance) for record in records)

    def _behind(self, record: Record, best: Record | None) -> bool:
        ratio = record.against(best, self.objective) if best else None
        return ratio is None or ratio.low > 1


def is_clear(ratio: Estimate) -> bool:
    """Return True if a ratio is a win by more than the margin, with its whole interval below 1."""
    return ratio.value < 1 - MARGIN and ratio.high < 1
