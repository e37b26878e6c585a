"""Confirmation of the best candidate in fresh processes, against the one that stays otherwise."""

from __future__ import annotations

from attrs import frozen

from etdev_tune.contest import Contest, is_clear
from etdev_tune.record import Record
from etdev_tune.report import Confirmation

SESSION = "confirmation"
# Pairs of processes; six in a row on one side happen by chance once in 64.
_LEAST, _MOST = 8, 16
# The fewest processes of a confirmation.
RESERVE = 2 * _LEAST
# The search can only estimate what to leave for it, and an unconfirmed win is lost.
_OVERRUN = 0.1


@frozen(eq=False)
class Confirmer:
    """Comparison of two records in rounds that the search has not seen.

    Args:
        contest: Objective, tolerance, budget and measurer.
    """

    contest: Contest

    def has_time(self) -> bool:
        """Return True if the budget lasts for the fewest rounds."""
        return self.contest.lasts(RESERVE, _OVERRUN)

    def confirm(self, winner: Record, name: str, other: Record, against: str) -> Confirmation:
        """Measure two records in turn until one is ahead, or for the most rounds.

        Args:
            winner: The best of the search.
            name: Name of its candidate.
            other: The record that it would replace.
            against: Name of that one's candidate.
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
            # Looking after every round would find wins by chance.
            if rounds == _LEAST and (is_clear(ratio) or ratio.low > 1):
                break
        return Confirmation(name, against, ratio, rounds, bool(ratio and is_clear(ratio)))
