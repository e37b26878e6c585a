"""The time budget of a tuning."""

from __future__ import annotations

import time

from attrs import define, field

from etdev.errors import TuneError


@define(eq=False)
class Clock:
    """A time budget, which begins when this is made.

    Args:
        budget_s: The budget in seconds.
    """

    budget_s: float = field()
    _start: float = field(factory=time.monotonic)

    @budget_s.validator
    def _check(self, _: object, value: float) -> None:
        if not value > 0:
            raise TuneError("budget", f"is {value!r}", "give seconds above 0, such as 600")

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.budget_s - self.spent

    def allows(self, seconds: float) -> bool:
        """Return True if that much time is left."""
        return seconds <= self.left
