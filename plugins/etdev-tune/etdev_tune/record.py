"""Records: all that was measured of one build, round by round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from attrs import define, field

from etdev_tune.builder import Build
from etdev_tune.cases import Case
from etdev_tune.exchange import Failure
from etdev_tune.measurement import Measurement
from etdev_tune.report import Estimate
from etdev_tune.statistics import median_of, ratio_of

LATENCY, SIZE, MEMORY = OBJECTIVES = ("latency", "size", "memory")
_NS_PER_MS = 1e6

# A round, by its session and number: what ran in the same one can be paired.
Round = tuple[str, int]


@define(eq=False)
class Record:
    """What is known about one build.

    Args:
        build: The build; other candidates may have given the same bytes.
        cases: What was measured.
        rounds: Measurements by round and method.
        failure: Why it gives no result.
    """

    build: Build
    cases: Sequence[Case]
    rounds: dict[Round, Mapping[str, Measurement]] = field(factory=dict)
    failure: Failure | None = None

    @property
    def error(self) -> float:
        """The largest error of any of its outputs in any process; infinite if it fails."""
        errors = [
            measurement.error
            for methods in self.rounds.values()
            for measurement in methods.values()
            if measurement.error is not None
        ]
        return math.inf if self.failure or not errors else max(errors)

    def admitted(self, tolerance: float) -> bool:
        """Whether it runs, and within a tolerance of eager PyTorch."""
        return self.error <= tolerance

    @property
    def latency(self) -> Estimate | None:
        """Milliseconds per call, over all methods and weighted inputs."""
        rounds = [self.values(key, LATENCY) for key in self.rounds]
        return None if self.failure or not rounds else median_of(rounds)

    @property
    def memory_bytes(self) -> int | None:
        """Highest resident memory, the median over the processes."""
        values = [
            measurement.memory_bytes
            for methods in self.rounds.values()
            for measurement in methods.values()
            if measurement.memory_bytes
        ]
        return int(statistics.median(values)) if values else None

    def values(self, key: Round, objective: str) -> list[float]:
        """What an objective compares, for one round: times of calls, or a number of bytes."""
        if objective == SIZE:
            return [float(self.build.size_bytes)]
        methods = self.rounds[key]
        if objective == MEMORY:
            known = [m.memory_bytes for m in methods.values() if m.memory_bytes]
            # A target that can't tell still has the planned memory.
            return [float(max(known, default=self.build.arena_bytes or 1))]
        calls = [
            (weight, methods[case.method].times_ns[index])
            for case in self.cases
            for index, weight in enumerate(case.weights)
            if weight
        ]
        whole = sum(weight for weight, _ in calls)
        # The n-th calls of all inputs together are one sample.
        return [
            sum(weight * time for (weight, _), time in zip(calls, times, strict=True))
            / whole
            / _NS_PER_MS
            for times in zip(*(times for _, times in calls), strict=False)
        ]

    def against(self, other: Record, objective: str, session: str = "") -> Estimate | None:
        """How many times the other's cost this one has, over the rounds that both ran in.

        Args:
            other: What it is compared with.
            objective: What is compared.
            session: Only rounds of this session.
        """
        shared = [
            key for key in self.rounds if key in other.rounds and (not session or key[0] == session)
        ]
        if not shared or self.failure or other.failure:
            return None
        own = [self.values(key, objective) for key in shared]
        return ratio_of(own, [other.values(key, objective) for key in shared])
