"""The report of a tuning: candidates, moves, and how sure it is of the one that it chose."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from etdev.schema.documents import Document

# What `etdev tune --json` prints: a `Report`.
TUNING = Document("etdev.tuning", 1, "a tuning", "etdev tune --json")
# What became of a candidate: it ran within tolerance, ran outside it, or gave no result.
RAN, WRONG, FAILED, UNTRIED = STATES = ("ran", "wrong", "failed", "untried")


@frozen
class Estimate:
    """A number that was measured, with the interval that it lies in.

    Args:
        value: The estimate.
        low: Lower end of its interval of 95 % confidence.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@frozen
class Trial:
    """One candidate.

    Args:
        name: What it is, in words.
        state: `ran`, `wrong` (outside the tolerance), `failed`, or `untried`.
        detail: Why it failed or is wrong.
        plugins: In claim order.
        options: By plugin, those that differ from the user's.
        limits: By plugin, likewise, in words.
        pins: Beside the user's.
        same_as: An earlier candidate that gives the same bytes, and was measured in its place.
        delegates: How many.
        portable_nodes: Nodes that are left to portable kernels.
        size_bytes: Of .pte and .ptd.
        memory_bytes: Highest resident memory of its process.
        error: Largest error, relative to the largest value of its output.
        latency_ms: Median over processes, with its interval.
        against_untuned: Its latency as a multiple of the untuned plan's, in rounds of both.
        rounds: Processes that it was measured in.
        build_s: Seconds that it took to lower.
        front: No other candidate within tolerance is at least as fast, small and exact.
    """

    name: str
    state: str
    detail: str = ""
    plugins: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, str]] = field(factory=dict)
    limits: Mapping[str, str] = field(factory=dict)
    pins: tuple[str, ...] = ()
    same_as: str = ""
    delegates: int = 0
    portable_nodes: int = 0
    size_bytes: int = 0
    memory_bytes: int | None = None
    error: float | None = None
    latency_ms: Estimate | None = None
    against_untuned: Estimate | None = None
    rounds: int = 0
    build_s: float = 0.0
    front: bool = False


@frozen
class Move:
    """A change of a candidate that was considered.

    Args:
        name: The change, in words.
        of: The candidate that it changes.
        taken: Whether the search went on from there.
        why: Why, or why not.
        predicted: Its cost as a multiple of the candidate's, as profiles predict it.
        measured: The same, as it was measured.
    """

    name: str
    of: str
    taken: bool
    why: str
    predicted: float | None = None
    measured: Estimate | None = None


@frozen
class Confirmation:
    """The winner against the plan that it would replace, in fresh processes.

    Args:
        winner: The fastest candidate of the search.
        against: What it was held against: the untuned plan, if that is within tolerance.
        ratio: The winner's cost as a multiple of the other's; None if they are the same.
        rounds: Pairs of processes.
        clear: Whether the whole interval is on the winner's side.
    """

    winner: str
    against: str
    ratio: Estimate | None
    rounds: int
    clear: bool


@frozen
class Report:
    """A tuning.

    Args:
        program: The .pte that was written.
        chosen: The candidate that it is.
        verdict: What was decided, in words.
        objective: `latency`, `size` or `memory`.
        tolerance: Largest error that was allowed.
        target: The runner.
        fingerprint: What the times depend on, as the target says it.
        threads: Of each process.
        calls: Calls that are compared, over all methods.
        timed: Calls that are timed, over all methods.
        budget_s: Seconds that were allowed.
        seconds: Seconds that it took.
        finished: Whether the search came to its end within the budget.
        measured: Measurements that were taken.
        reused: Measurements that were found in the store.
        disturbed: Measurements during which the target was busy or slowed down.
        notes: What else there is to know, such as a busy machine.
        trials: The candidates.
        moves: The changes that were considered.
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
    notes: tuple[str, ...]
    trials: tuple[Trial, ...]
    moves: tuple[Move, ...]
    confirmation: Confirmation | None
