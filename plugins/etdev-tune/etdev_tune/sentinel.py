"""Detection of a busy or throttled target.

Every process on the target times a fixed calculation before, between and after its calls, and
reads how many processors everything else used. The times are compared with the target's own best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import define, field

# From this multiple of its best time on, the fixed calculation was throttled or preempted.
_SLOW = 1.25
# Processors that may be in use by everything else although none is free.
_OTHERS = 0.25


@define(eq=False)
class Sentinel:
    """A judge of measurements, which counts those that were disturbed.

    Args:
        spare: Processors that measurements leave to everything else.
        best_ns: Best time of the fixed calculation so far.
        judged: Number of measurements.
        reasons: Number of disturbed measurements by kind of disturbance.
    """

    spare: int
    best_ns: int | None = None
    judged: int = 0
    reasons: Counter[str] = field(factory=Counter)

    @classmethod
    def of(cls, fingerprint: Mapping[str, str], threads: int) -> Sentinel:
        """Make the sentinel of a target.

        Args:
            fingerprint: Facts about the target, its number of `cores` among them.
            threads: Threads that a measurement uses.
        """
        text = fingerprint.get("cores", "")
        return cls(max(0, int(text) - threads) if text.isdigit() else 0)

    @property
    def disturbed(self) -> int:
        """Number of measurements that were disturbed."""
        return self.reasons.total()

    @property
    def is_busy(self) -> bool:
        """Return True if most measurements were disturbed, so that repeating them can't help."""
        return self.disturbed > max(4, self.judged / 2)

    @property
    def summary(self) -> str:
        """Sentence about all measurements; empty if none was disturbed."""
        if not self.disturbed:
            return ""
        kinds = ", ".join(f"{kind} {count} times" for kind, count in sorted(self.reasons.items()))
        return f"{self.disturbed} of {self.judged} measurements were disturbed ({kinds})"

    def learn(self, times_ns: Iterable[int]) -> None:
        """Note the best time of the fixed calculation."""
        self.best_ns = min([*times_ns, *([self.best_ns] if self.best_ns else [])], default=None)

    def disturbance(self, times_ns: tuple[int, ...], others_cpu: float | None) -> str:
        """Return why a measurement can't be trusted; empty if nothing disturbed it.

        Args:
            times_ns: Times of the fixed calculation.
            others_cpu: Processors that everything else used.
        """
        self.learn(times_ns)
        self.judged += 1
        slowest = max(times_ns, default=0)
        reason = ""
        if self.best_ns and slowest > _SLOW * self.best_ns:
            factor = slowest / self.best_ns
            reason = f"slowed down: a fixed calculation took {factor:.1f} times as long as at best"
        elif others_cpu is not None and others_cpu > self.spare + _OTHERS:
            reason = f"busy: everything else used {others_cpu:.1f} processors"
        if reason:
            self.reasons[reason.partition(":")[0]] += 1
        return reason
