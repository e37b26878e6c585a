"""Detection of a busy or throttled target.

Every process on the target times a fixed calculation before, between and after its calls, and
reads how many processors everything else used. The times are compared with the target's own best.
"""

from __future__ import annotations

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
        cores: Processors of the target; None if unknown.
        threads: Threads that a measurement uses.
        best_ns: Best time of the fixed calculation so far.
        judged: Number of measurements.
        disturbed: Number of those that were disturbed.
    """

    cores: int | None
    threads: int
    best_ns: int | None = None
    judged: int = 0
    disturbed: int = 0
    _reasons: dict[str, int] = field(factory=dict)

    @classmethod
    def of(cls, fingerprint: Mapping[str, str], threads: int) -> Sentinel:
        """Make the sentinel of a target."""
        text = fingerprint.get("cores", "")
        return cls(int(text) if text.isdigit() else None, threads)

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
        reason = self._slow(times_ns) or self._busy(others_cpu)
        self.judged += 1
        if reason:
            self.disturbed += 1
            kind = reason.partition(":")[0]
            self._reasons[kind] = self._reasons.get(kind, 0) + 1
        return reason

    @property
    def summary(self) -> str:
        """Sentence about all measurements; empty if none was disturbed."""
        if not self.disturbed:
            return ""
        kinds = ", ".join(f"{kind} {count} times" for kind, count in sorted(self._reasons.items()))
        return f"{self.disturbed} of {self.judged} measurements were disturbed ({kinds})"

    def _slow(self, times_ns: tuple[int, ...]) -> str:
        if not times_ns or not self.best_ns or max(times_ns) <= _SLOW * self.best_ns:
            return ""
        factor = max(times_ns) / self.best_ns
        return f"slowed down: a fixed calculation took {factor:.1f} times as long as at best"

    def _busy(self, others_cpu: float | None) -> str:
        if others_cpu is None:
            return ""
        spare = max(0, self.cores - self.threads) if self.cores else 0
        if others_cpu <= spare + _OTHERS:
            return ""
        return f"busy: everything else used {others_cpu:.1f} processors"
