"""Medians and ratios of measured times, with confidence intervals.

A round is one process. Its calls share the place of its weights in memory, so rounds are the
samples, each with the median of its calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from etdev_tune.report import Estimate

# Two-sided 95 % quantiles of Student's t, by degrees of freedom from 1.
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306),
    *(2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
)
# Half of the two-sided 95 % quantile of the normal distribution.
_HALF_NORMAL = 0.98


def median_of(rounds: Sequence[Sequence[float]]) -> Estimate:
    """Return the median over rounds of the median over the calls of each.

    The interval lies between two of the rounds, or of the calls if there is one round: the ones
    that the median is between with about 95 % probability, whatever the distribution. Of eight or
    fewer these are the lowest and the highest.
    """
    values = sorted(rounds[0] if len(rounds) == 1 else map(median, rounds))
    middle = (len(values) - 1) / 2
    low = max(0, math.floor(middle - _HALF_NORMAL * math.sqrt(len(values))))
    return Estimate(median(values), values[low], values[-1 - low])


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
