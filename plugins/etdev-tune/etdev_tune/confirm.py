"""The confirmation: the best of the search against what stays otherwise, measured anew."""

from __future__ import annotations

from attrs import frozen

from etdev_tune.contest import Contest, is_clear
from etdev_tune.record import Record
from etdev_tune.report import Confirmation

SESSION = "confirmation"
# Pairs of processes: six in a row on one side are chance once in 64.
_LEAST, _MOST = 8, 16
# Processes that it takes at least.
RESERVE = 2 * _LEAST
# What the search leaves for it is a guess, and a win that isn't confirmed is lost.
_OVERRUN = 0.1


@frozen(eq=False)
class Confirmer:
    """Compares two records in rounds of which the search has not seen any.

    Args:
        contest: What counts, and what measures.
    """

    contest: Contest

    def has_time(self) -> bool:
        """Whether the budget lasts for as many rounds as it takes at least."""
        return self.contest.lasts(RESERVE, _OVERRUN)

    def confirm(self, winner: Record, name: str, other: Record, against: str) -> Confirmation:
        """Measure both in turn until one is ahead or both had many rounds.

        Args:
            winner: The best of the search.
            name: What it is called.
            other: What it would replace.
            against: What that is called.
        """
        if winner is other:
            return Confirmation(name, against, None, 0, False)
        ratio, rounds = None, 0
        session = self.contest.measurer.session_of([other, winner], SESSION)
        while rounds < _MOST and (rounds < _LEAST or self.contest.lasts(2, _OVERRUN)):
            self.contest.measurer.round([other, winner], SESSION, rounds)
            rounds += 1
            ratio = winner.against(other, self.contest.objective, session)
            if ratio is None or not winner.admitted(self.contest.tolerance):
                return Confirmation(name, against, None, rounds, False)
            # Looked at twice only: who looks after every round finds chance wins.
            if rounds == _LEAST and (is_clear(ratio) or ratio.low > 1):
                break
        return Confirmation(name, against, ratio, rounds, bool(ratio and is_clear(ratio)))
