"""The front of a tuning: the candidates that no other one beats in error, latency and size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import evolve

from etdev_tune.report import Estimate, Trial

# Sizes that differ by less are the same.
_SAME = 0.01


def with_front(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return trials with those marked that no other one beats.

    A candidate that is faster than one on the front by noise alone, and no smaller or more exact,
    is merged with that, and says so.
    """
    ran = [t for t in trials if t.error is not None and t.latency_ms and not t.same_as]
    front: list[Trial] = []
    merged = {}
    # One on the front is at least as exact as those that it beats, so that it comes first.
    for trial in sorted(ran, key=_order):
        better = next((other for other in front if _beats(other, trial)), None)
        if better is None:
            front.append(trial)
        elif _is_noise(better, trial):
            merged[trial.name] = f"as {better.name}, within noise"
    names = {trial.name for trial in front}
    return tuple(
        evolve(t, front=t.name in names, detail=t.detail or merged.get(t.name, "")) for t in trials
    )


def _order(trial: Trial) -> tuple[float, int, float]:
    assert trial.latency_ms
    error = math.inf if trial.error is None else trial.error
    return error, trial.size_bytes, trial.latency_ms.value


def _beats(first: Trial, second: Trial) -> bool:
    """Return True if a trial, at least as exact, is as small and, up to noise, as fast."""
    own, other = _costs(first, second)
    fast = own.value <= other.value or own.low <= other.high
    return fast and first.size_bytes <= second.size_bytes


def _is_noise(first: Trial, second: Trial) -> bool:
    own, other = _costs(first, second)
    close = own.low <= other.high and other.low <= own.high
    return close and math.isclose(first.size_bytes, second.size_bytes, rel_tol=_SAME)


def _costs(first: Trial, second: Trial) -> tuple[Estimate, Estimate]:
    """Return the latencies of two trials, if possible of rounds that are paired with others."""
    if first.against_untuned and second.against_untuned:
        return first.against_untuned, second.against_untuned
    assert first.latency_ms
    assert second.latency_ms
    return first.latency_ms, second.latency_ms
