"""Contests between candidates, which are measured in turn until one is faster beyond doubt."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence

from attrs import define, field, frozen
from attrs.validators import gt

from etdev_tune.measurer import Measurer
from etdev_tune.record import SIZE, Record
from etdev_tune.report import Confirmation, Estimate, Limits

# A difference below 1 % does not justify another plan.
MARGIN = 0.01
# The fewest and the most rounds of a race and of a duel.
_RACE = (3, 6)
_DUEL = (3, 7)
# A duel may end before its fewest rounds if the challenger costs at least that much.
_HOPELESS = 1.5
# On a busy machine, a duel about at least this much goes on for up to that many rounds.
_PROMISING, _LONGEST = 0.9, 16
# The fewest processes of a duel.
LEAST_OF_DUEL = 2 * _DUEL[0]
# The fewest and the most pairs of a confirmation; six in a row on one side happen by chance once
# in 64.
_CONFIRMATION = (8, 16)
# The fewest processes of a confirmation, for which the budget has to last after races and duels.
RESERVE = 2 * _CONFIRMATION[0]
# Share of the budget by which a confirmation may exceed it: the search can only estimate what to
# leave for it, and an unconfirmed win is lost.
_OVERRUN = 0.1


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


@frozen(eq=False)
class Contest:
    """Comparisons of candidates by rounds in which all of them are measured."""

    measurer: Measurer
    objective: str
    limits: Limits
    clock: Clock

    def race(self, records: Sequence[Record], session: str) -> Record | None:
        """Measure many candidates, drop those that are clearly behind, and return the best.

        Candidates that fail or exceed the limits are measured once, for the report. Once the
        budget is spent, candidates are measured only until one is within the limits.
        """
        racing = list({record.build.digest: record for record in records}.values())
        least, most = _RACE
        for number in range(most):
            # Further rounds may leave no time for the duels that follow.
            rest = LEAST_OF_DUEL + RESERVE if number >= least else 0
            if number and not self._lasts(len(racing) + rest):
                break
            enough = functools.partial(self._enough, [] if number else racing)
            self.measurer.round(racing, session, number, enough)
            racing = [record for record in racing if record.admitted(self.limits)]
            if len(racing) > 1 and number + 1 >= least:
                best = min(racing, key=self.cost)
                racing = [r for r in racing if r is best or not self._is_behind(r, best)]
            if not racing or (len(racing) == 1 and number + 1 >= least):
                break
        admitted = [record for record in records if record.admitted(self.limits)]
        return min(admitted, key=self.cost, default=None)

    def duel(self, challenger: Record, holder: Record) -> Estimate | None:
        """Measure two candidates until one is ahead, or the budget lasts for the reserve alone.

        Return the challenger's cost as a multiple of the holder's; None if the challenger fails.
        """
        least, most = _DUEL
        for number in range(_LONGEST):
            self.measurer.round([holder, challenger], "duel", number)
            ratio = challenger.against(holder, self.objective)
            if ratio is None or not challenger.admitted(self.limits):
                return None
            if ratio.value > _HOPELESS and ratio.low > 1:
                break
            decided = self.is_clear(ratio) or ratio.low > 1 - MARGIN
            if number + 1 >= least and (decided or not self._lasts(2 + RESERVE)):
                break
            if number + 1 >= most and ratio.value > _PROMISING:
                break
        return ratio

    def can_confirm(self) -> bool:
        """Return True if the budget lasts for the fewest rounds of a confirmation."""
        return self._lasts(RESERVE, _OVERRUN)

    def confirm(self, winner: Record, name: str, other: Record, against: str) -> Confirmation:
        """Measure two records in fresh processes, in rounds that the search has not seen.

        The names are those of their candidates.
        """
        least, most = _CONFIRMATION
        ratio, rounds = None, 0
        session = self.measurer.session_of([other, winner], "confirmation")
        while rounds < most and (rounds < least or self._lasts(2, _OVERRUN)):
            self.measurer.round([other, winner], "confirmation", rounds)
            rounds += 1
            ratio = winner.against(other, self.objective, session)
            if ratio is None or not winner.admitted(self.limits):
                return Confirmation(name, against, None, rounds, False)
            # Looking after every round would find wins by chance.
            if rounds == least and (self.is_clear(ratio) or ratio.low > 1):
                break
        return Confirmation(name, against, ratio, rounds, bool(ratio and self.is_clear(ratio)))

    def cost(self, record: Record) -> float:
        """Return the cost of a record by the objective."""
        if self.objective == SIZE:
            return float(record.build.deployed_bytes)
        if self.objective == "memory":
            return float(record.memory_bytes or record.build.arena_bytes)
        latency = record.latency
        return latency.value if latency else float("inf")

    def is_clear(self, ratio: Estimate) -> bool:
        """Return True if a ratio of costs is a win; sizes are exact, and need no margin."""
        return ratio.value < 1 if self.objective == SIZE else is_clear(ratio)

    def _lasts(self, processes: int, overrun: float = 0.0) -> bool:
        """Return True if the budget, or a little more of it, lasts for that many processes."""
        needed = processes * (self.measurer.usual_s or 0.0)
        return self.clock.allows(needed - overrun * self.clock.budget_s)

    def _enough(self, records: Sequence[Record]) -> bool:
        """Return True if the budget is spent, and a record is within the limits."""
        return any(record.admitted(self.limits) for record in records) and not self._lasts(1)

    def _is_behind(self, record: Record, best: Record) -> bool:
        ratio = record.against(best, self.objective)
        return ratio is None or ratio.low > 1


def is_clear(ratio: Estimate) -> bool:
    """Return True if a ratio is a win by more than the margin, with its whole interval below 1."""
    return ratio.value < 1 - MARGIN and ratio.high < 1
