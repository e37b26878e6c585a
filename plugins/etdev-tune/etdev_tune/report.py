"""Reports of tunings, and their JSON documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from etdev import Pin
from etdev.app import Document, size
from etdev.errors import TuneError

# The document that `etdev tune --json` prints is a `Report`.
TUNING = Document("etdev.tuning", 6, "etdev tune")
# A candidate ran within the limits, ran outside of them, gave no result, or was not tried.
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
class Limits:
    """Limits of the candidates that may be written.

    Args:
        error: Largest error, relative to the largest value of an output; None for any.
        metric: Least figure of the user's metric; None for any.
        size_bytes: Largest size of .pte and .ptd; None for any.
    """

    error: float | None = None
    metric: float | None = None
    size_bytes: int | None = None

    def excess(self, error: float, metric: float | None, size_bytes: int) -> str:
        """Return the limit that some figures exceed, in words; empty if they exceed none."""
        if self.error is not None and not error <= self.error:
            return f"error above {self.error:g}"
        if self.metric is not None and (metric is None or metric < self.metric):
            return f"metric below {self.metric:g}"
        if self.size_bytes is not None and size_bytes > self.size_bytes:
            return f"larger than {size(self.size_bytes)}"
        return ""

    def __str__(self) -> str:
        error = "" if self.error is None else f"{self.error:g}"
        metric = "" if self.metric is None else f"a metric of {self.metric:g}"
        largest = "" if self.size_bytes is None else size(self.size_bytes)
        return ", ".join(filter(None, (error, metric, largest)))


@frozen
class Sensitivity:
    """Errors of a model, in PyTorch on the calibration data, by the scheme of one layer.

    Args:
        layer: Name of the layer.
        scheme: Name of the scheme.
        alone: Error if no other layer has the scheme.
        without: Error if every other layer has it, as far as it takes them; None if there was no
            time for it.
    """

    layer: str
    scheme: str
    alone: float
    without: float | None


@frozen
class Trial:
    """A candidate with its results.

    Args:
        name: Description of the candidate.
        state: `ran`, `wrong` (outside the limits), `failed`, or `untried`.
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
        predicted_error: Error that sensitivities foretold, of a candidate with a recipe.
        metric: The user's metric of its outputs.
        predicted_ms: Latency that those of uniform schemes foretold, of a mixed configuration.
        latency_ms: Median over processes, with its interval.
        against_untuned: Latency as a multiple of the untuned plan's, in rounds of both.
        rounds: Number of processes that it was measured in.
        front: No other candidate is at least as fast, up to noise, small and exact.
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
    predicted_error: float | None = None
    metric: float | None = None
    predicted_ms: float | None = None
    latency_ms: Estimate | None = None
    against_untuned: Estimate | None = None
    rounds: int = 0
    front: bool = False


@frozen
class Confirmation:
    """Comparison in fresh processes of the winner and the candidate that it would replace.

    Args:
        winner: The fastest candidate of the search.
        against: The other: the untuned plan or uniform scheme, if one is within the limits.
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
        limits: Limits of what may be written.
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
        trials: The candidates.
        confirmation: The last comparison.
        calibrated: Number of calls, apart from the compared ones, that recipes come from.
        metric: The user's metric of eager PyTorch's outputs.
        sensitivities: Errors by layer and scheme.
        weights: Weight of each timed call in the latency, by method.
    """

    program: str
    chosen: str
    verdict: str
    objective: str
    limits: Limits
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
    trials: tuple[Trial, ...]
    confirmation: Confirmation | None
    calibrated: int = 0
    metric: float | None = None
    sensitivities: tuple[Sensitivity, ...] = ()
    weights: Mapping[str, float] = field(factory=dict)

    def point(self, number: int) -> Trial:
        """Return a candidate that ran by its number, which is its place in the table.

        Raises:
            TuneError: The table has no such number, or the candidate has no program.
        """
        ran = [trial for trial in self.trials if trial.state in (RAN, WRONG)]
        if not 0 <= number < len(ran):
            cure = f"give one of 0 to {len(ran) - 1}, as --show lists them"
            raise TuneError("--point", f"no candidate {number} ran", cure)
        return ran[number]
