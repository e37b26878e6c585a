"""The front of a tuning: the candidates that no other one beats in error, latency and size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import evolve

from etdev_tune.report import Estimate, Trial

# Errors and sizes that differ by these factors are the same; so are errors of float32's rounding.
_SAME_ERROR, _SAME_SIZE = 1.05, 1.01
_ROUNDING = 1e-5


def with_front(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return trials with those marked that no other one beats.

    A candidate that differs from one on the front by noise alone is merged with it, and says so.
    """
    ran = [t for t in trials if t.error is not None and t.latency_ms and not t.same_as]
    front: list[Trial] = []
    merged = {}
    for trial in sorted(ran, key=_order):
        better = next((other for other in front if _beats(other, trial)), None)
        if better is None:
            front = [other for other in front if not _beats(trial, other)] + [trial]
        elif _is_as_cheap(trial, better):
            merged[trial.name] = f"as {better.name}, within noise"
    names = {trial.name for trial in front}
    return tuple(
        evolve(t, front=t.name in names, detail=t.detail or merged.get(t.name, "")) for t in trials
    )


def _order(trial: Trial) -> tuple[float, int, float]:
    assert trial.latency_ms
    return _error(trial), trial.size_bytes, trial.latency_ms.value


def _error(trial: Trial) -> float:
    return max(_ROUNDING, math.inf if trial.error is None else trial.error)


def _beats(first: Trial, second: Trial) -> bool:
    """Return True if a trial is, up to noise, as exact, as small and as fast as another.

    A mixed configuration beats a uniform scheme only by its figures as they are: on other calls
    noise may turn, and a uniform scheme is simpler.
    """
    if _is_mixed(first) and not _is_mixed(second):
        own, other = _latencies(first, second)
        exact = _error(first) <= _error(second)
        return exact and first.size_bytes <= second.size_bytes and own.value <= other.value
    return _error(first) <= _SAME_ERROR * _error(second) and _is_as_cheap(first, second)


def _is_mixed(trial: Trial) -> bool:
    """Return True if a trial has layers of several schemes; only theirs have a prediction."""
    return trial.predicted_ms is not None


def _is_as_cheap(first: Trial, second: Trial) -> bool:
    """Return True if a trial is, up to noise, as small and as fast as another."""
    own, other = _latencies(first, second)
    return first.size_bytes <= _SAME_SIZE * second.size_bytes and own.low <= other.high


def _latencies(first: Trial, second: Trial) -> tuple[Estimate, Estimate]:
    """Return the latencies of two trials, if possible of rounds that are paired with others."""
    if first.against_untuned and second.against_untuned:
        return first.against_untuned, second.against_untuned
    assert first.latency_ms
    assert second.latency_ms
    return first.latency_ms, second.latency_ms
