"""Medians and ratios of measured times, with confidence intervals from bootstrapping.

A round is one process. Calls of a process share the place of its weights in memory, so a resample
draws rounds first, and calls within them second. With few rounds that interval is too narrow: three
that are slower by chance look certain. The interval of a ratio is therefore at least as wide as
Student's t over the rounds. All draws come from a fixed seed, so equal times give equal intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from etdev.errors import TuneError
from etdev_tune.report import Estimate

Array = np.ndarray[Any, np.dtype[np.float64]]
CONFIDENCE = 0.95
_DRAWS = 2000
_SEED = 20
# Two-sided quantiles of Student's t at that confidence, by degrees of freedom from 1.
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306),
    *(2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
)


def median_of(rounds: Sequence[Sequence[float]]) -> Estimate:
    """Return the median over rounds of the median over the calls of each.

    Args:
        rounds: Times of the calls, by round.

    Raises:
        TuneError: A round has no times, or one of them is not positive.
    """
    _check(rounds)
    medians = [float(np.median(calls)) for calls in rounds]
    return _estimate(float(np.median(medians)), np.median(_resampled(rounds), axis=1))


def ratio_of(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> Estimate:
    """Return the time of the first as a multiple of the second's; below 1 the first is faster.

    Rounds are paired, since a slow machine slows both of a pair. The estimate is the geometric mean
    over the pairs.

    Args:
        first: Times of the calls, by round.
        second: Times of the calls, by round; each ran next to the first's.

    Raises:
        TuneError: As `median_of`, or the numbers of rounds differ.
    """
    _check(first)
    _check(second)
    if len(first) != len(second):
        what = f"{len(first)} rounds can't be paired with {len(second)}"
        raise TuneError("statistics", what, "measure both in each round")
    logarithms = [
        float(np.log(np.median(a)) - np.log(np.median(b)))
        for a, b in zip(first, second, strict=True)
    ]
    generator = np.random.default_rng(_SEED)
    count = len(logarithms)
    picks = generator.integers(0, count, (_DRAWS, count))
    within = [
        _medians(a, generator) - _medians(b, generator) for a, b in zip(first, second, strict=True)
    ]
    draws = np.stack(within, axis=1)[np.arange(_DRAWS)[:, None], picks].mean(axis=1)
    estimate = _widened(_estimate(float(np.mean(logarithms)), draws), logarithms)
    return Estimate(*(float(np.exp(v)) for v in (estimate.value, estimate.low, estimate.high)))


def _widened(estimate: Estimate, values: Sequence[float]) -> Estimate:
    """Widen the interval around the mean of some values to that of Student's t."""
    if len(values) == 1:
        return estimate
    quantile = _STUDENT[min(len(values) - 1, len(_STUDENT)) - 1]
    reach = quantile * float(np.std(values, ddof=1)) / len(values) ** 0.5
    value = estimate.value
    return Estimate(value, min(estimate.low, value - reach), max(estimate.high, value + reach))


def _check(rounds: Sequence[Sequence[float]]) -> None:
    if not rounds or not all(len(calls) for calls in rounds):
        raise TuneError("statistics", "a round has no times", "measure at least one call")
    if any(not np.isfinite(time) or time <= 0 for calls in rounds for time in calls):
        raise TuneError("statistics", "a time is not above 0", "measure it again")


def _medians(calls: Sequence[float], generator: np.random.Generator) -> Array:
    """Return logarithms of the medians of resampled calls of a round."""
    times = np.asarray(calls, dtype=float)
    picks = generator.integers(0, len(times), (_DRAWS, len(times)))
    logarithms: Array = np.log(np.median(times[picks], axis=1))
    return logarithms


def _resampled(rounds: Sequence[Sequence[float]]) -> Array:
    """Return medians of resampled rounds, a row for each draw."""
    generator = np.random.default_rng(_SEED)
    medians = np.exp(np.stack([_medians(calls, generator) for calls in rounds], axis=1))
    picks = generator.integers(0, len(rounds), (_DRAWS, len(rounds)))
    resampled: Array = medians[np.arange(_DRAWS)[:, None], picks]
    return resampled


def _estimate(value: float, draws: Array) -> Estimate:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    # A median of few values can lie outside the quantiles of its resamples.
    return Estimate(value, min(float(low), value), max(float(high), value))
