"""Medians and ratios of measured times, with confidence intervals.

A round is one process. Its calls share the place of its weights in memory, so rounds are the
samples, each with the median of its calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from etdev.errors import TuneError
from etdev_tune.report import Estimate

# Probability that a value lies beyond one end of an interval.
_TAIL = 0.025
# Two-sided quantiles of Student's t at that confidence, by degrees of freedom from 1.
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306),
    *(2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
)


def median_of(rounds: Sequence[Sequence[float]]) -> Estimate:
    """Return the median over rounds of the median over the calls of each.

    The interval lies between two of the rounds, or of the calls if there is one round: the ones
    that the median is between with 95 % probability, whatever the distribution. Of five or fewer
    these are the lowest and the highest.

    Args:
        rounds: Times of the calls, by round.

    Raises:
        TuneError: A round has no times, or one of them is not positive.
    """
    _check(rounds)
    values = sorted(rounds[0] if len(rounds) == 1 else map(median, rounds))
    count, outside, probability = len(values), 0, 0.0
    while outside < (count - 1) // 2:
        probability += math.comb(count, outside) / 2**count
        if probability > _TAIL:
            break
        outside += 1
    outside = max(outside - 1, 0)
    return Estimate(median(values), values[outside], values[-1 - outside])


def ratio_of(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> Estimate:
    """Return the time of the first as a multiple of the second's; below 1 the first is faster.

    Rounds are paired, since a slow machine slows both of a pair. The estimate is the geometric mean
    over the pairs, its interval Student's t of their logarithms. The interval of a single pair goes
    from the lowest to the highest ratio of its calls.

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
    pairs = list(zip(first, second, strict=True))
    if len(pairs) == 1:
        ((one, other),) = pairs
        value = median(one) / median(other)
        return Estimate(value, min(one) / max(other), max(one) / min(other))
    logarithms = [math.log(median(one) / median(other)) for one, other in pairs]
    mean = fmean(logarithms)
    quantile = _STUDENT[min(len(pairs) - 1, len(_STUDENT)) - 1]
    reach = quantile * stdev(logarithms) / math.sqrt(len(pairs))
    return Estimate(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))


def _check(rounds: Sequence[Sequence[float]]) -> None:
    if not rounds or not all(rounds):
        raise TuneError("statistics", "a round has no times", "measure at least one call")
    if any(not math.isfinite(time) or time <= 0 for calls in rounds for time in calls):
        raise TuneError("statistics", "a time is not above 0", "measure it again")
