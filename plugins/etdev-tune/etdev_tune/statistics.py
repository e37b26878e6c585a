"""Medians and ratios of measured times, with confidence intervals.

A round is one process. Its calls share the place of its weights in memory, so rounds are the
samples, each with the median of its calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

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
    """
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
    """
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
