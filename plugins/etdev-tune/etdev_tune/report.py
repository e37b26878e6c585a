"""Reports of tunings, and their JSON documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from etdev.schema.documents import Document
from etdev.schema.pins import Pin

# The document that `etdev tune --json` prints is a `Report`.
TUNING = Document("etdev.tuning", 4, "etdev tune")
# A candidate ran within the tolerance, ran outside it, gave no result, or was not tried.
RAN, WRONG, FAILED, UNTRIED = STATES = ("ran", "wrong", "failed", "untried")


@frozen
class Estimate:
    """A measured number with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@frozen
class Trial:
    """A candidate with its results.

    Args:
        name: Description of the candidate.
        state: `ran`, `wrong` (outside the tolerance), `failed`, or `untried`.
        detail: Why it failed or is wrong, or why the search went on from it, or didn't.
        plugins: Names in claim order.
        options: Options by plugin that differ from the user's.
        pins: Pins besides the user's.
        same_as: Earlier candidate with the same bytes, which was measured in its place.
        delegates: Number of delegates.
        portable_nodes: Number of nodes on portable kernels.
        size_bytes: Size of .pte and .ptd.
        runtime_bytes: Size of the libraries of ExecuTorch that a C++ program needs for it.
        memory_bytes: Highest resident memory of its process.
        error: Largest error, relative to the largest value of the output.
        latency_ms: Median over processes, with its interval.
        against_untuned: Latency as a multiple of the untuned plan's, in rounds of both.
        rounds: Number of processes that it was measured in.
        front: No other candidate within the tolerance is at least as fast, small and exact.
    """

    name: str
    state: str
    detail: str = ""
    plugins: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    pins: tuple[Pin, ...] = ()
    same_as: str = ""
    delegates: int = 0
    portable_nodes: int = 0
    size_bytes: int = 0
    runtime_bytes: int = 0
    memory_bytes: int | None = None
    error: float | None = None
    latency_ms: Estimate | None = None
    against_untuned: Estimate | None = None
    rounds: int = 0
    front: bool = False


@frozen
class Confirmation:
    """Comparison in fresh processes of the winner and the candidate that it would replace.

    Args:
        winner: The fastest candidate of the search.
        against: The other: the untuned plan, if that is within the tolerance.
        ratio: The winner's cost as a multiple of the other's; None if the winner failed.
        rounds: Number of pairs of processes.
        clear: The whole interval is on the winner's side.
    """

    winner: str
    against: str
    ratio: Estimate | None
    rounds: int
    clear: bool


@frozen
class Report:
    """Report of a tuning.

    Args:
        program: Name of the .pte that was written.
        chosen: Its candidate.
        verdict: The decision in words.
        objective: `latency`, `size` or `memory`.
        tolerance: Largest error that was allowed.
        target: Name of the runner.
        fingerprint: Facts about the target that times depend on.
        threads: Threads of each process.
        calls: Number of calls that are compared, over all methods.
        timed: Number of calls that are timed, over all methods.
        budget_s: Seconds that were allowed.
        seconds: Seconds that were used.
        finished: The search was completed within the budget.
        measured: Number of measurements that were taken.
        reused: Number of measurements that were found in the store.
        disturbed: Number of measurements during which the target was busy or throttled.
        trials: The candidates.
        confirmation: The last comparison.
    """

    program: str
    chosen: str
    verdict: str
    objective: str
    tolerance: float
    target: str
    fingerprint: Mapping[str, str]
    threads: int
    calls: int
    timed: int
    budget_s: float
    seconds: float
    finished: bool
    measured: int
    reused: int
    disturbed: int
    trials: tuple[Trial, ...]
    confirmation: Confirmation | None
