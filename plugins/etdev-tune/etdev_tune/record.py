"""Records of all measurements of a build, by round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import mul
from statistics import median

from attrs import define, field

from etdev_tune.builder import Build
from etdev_tune.cases import Case
from etdev_tune.exchange import Failure, Result
from etdev_tune.report import Estimate, Limits
from etdev_tune.statistics import median_of, ratio_of

LATENCY, SIZE, MEMORY = OBJECTIVES = ("latency", "size", "memory")
_NS_PER_MS = 1e6

# Session and number of a round; measurements of the same round can be paired.
Round = tuple[str, int]


@define(eq=False)
class Record:
    """Measurements of a build, which may be that of several candidates, by round and method."""

    build: Build
    cases: Sequence[Case]
    rounds: dict[Round, Mapping[str, Result]] = field(factory=dict)
    failure: Failure | None = None

    @property
    def error(self) -> float:
        """Largest error of any output in any process; infinite for a failure."""
        errors = [m.error for m in self._measurements() if m.error is not None]
        return math.inf if self.failure or not errors else max(errors)

    @property
    def metric(self) -> float | None:
        """Least metric of any method in any process; None without one."""
        return min((m.metric for m in self._measurements() if m.metric is not None), default=None)

    def admitted(self, limits: Limits) -> bool:
        """Return True if it runs within limits."""
        return math.isfinite(self.error) and not self.excess(limits)

    def excess(self, limits: Limits) -> str:
        """Return the limit that it exceeds; empty if it exceeds none."""
        return limits.excess(self.error, self.metric, self.build.size_bytes)

    @property
    def latency(self) -> Estimate | None:
        """Milliseconds per call, over all methods and inputs by their weights."""
        rounds = [self.values(key, LATENCY) for key in self.rounds]
        return None if self.failure or not rounds else median_of(rounds)

    @property
    def memory_bytes(self) -> int | None:
        """Highest resident memory, the median over processes."""
        values = [m.memory_bytes for m in self._measurements() if m.memory_bytes]
        return int(median(values)) if values else None

    def values(self, key: Round, objective: str) -> list[float]:
        """Return the values of a round for an objective: times of calls, or a number of bytes."""
        if objective == SIZE:
            return [float(self.build.deployed_bytes)]
        methods = self.rounds[key]
        if objective == MEMORY:
            known = [m.memory_bytes for m in methods.values() if m.memory_bytes]
            # Planned memory is known even if the target can't measure any.
            return [float(max(known, default=self.build.arena_bytes or 1))]
        timed = [(case, i) for case in self.cases for i in case.timed if case.weight]
        calls = [methods[case.method].times_ns[i] for case, i in timed]
        weights = [case.weight for case, _ in timed]
        whole = sum(weights) * _NS_PER_MS
        # The n-th calls of all inputs together are one sample.
        return [sum(map(mul, weights, times)) / whole for times in zip(*calls, strict=False)]

    def against(self, other: Record, objective: str, session: str = "") -> Estimate | None:
        """Return this one's cost as a multiple of another's, over the rounds that both ran in.

        With a session, only its rounds count. Return None without such rounds, or for a failure.
        """
        if self is other and self.rounds and not self.failure:
            return Estimate(1.0, 1.0, 1.0)
        shared = [
            key for key in self.rounds if key in other.rounds and (not session or key[0] == session)
        ]
        if not shared or self.failure or other.failure:
            return None
        own = [self.values(key, objective) for key in shared]
        return ratio_of(own, [other.values(key, objective) for key in shared])

    def _measurements(self) -> Iterator[Result]:
        return (m for methods in self.rounds.values() for m in methods.values())
