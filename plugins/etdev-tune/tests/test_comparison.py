"""Comparisons: what a busy machine hides is looked at longer where much may be won."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from etdev_tune.comparison import Clock, Comparison, is_clear
from etdev_tune.report import Estimate
from etdev_tune.statistics import ratio_of


class Times:
    """A named fake of a record: times of rounds on a machine that is busy every other moment."""

    def __init__(self, generator, factor):
        self.generator, self.factor, self.rounds = generator, factor, []
        self.failure = None

    def run(self):
        busy = self.generator.choice([1.0, 1.9])
        self.rounds.append(list(self.factor * busy * np.exp(self.generator.normal(0, 0.02, 5))))

    def against(self, other, _objective):
        return ratio_of(self.rounds, other.rounds)

    def admitted(self, _tolerance):
        return True


def comparisons(factor, count=30):
    """How often one wins that takes so many times as long, and the most rounds of a comparison."""
    generator = np.random.default_rng(0)
    run = lambda records, *_: [record.run() for record in records]  # noqa: E731
    measurer = SimpleNamespace(round=run, usual_s=0.0)
    wins, longest, clock = 0, 0, Clock(1e9)
    for _ in range(count):
        plain, other = Times(generator, 1.0), Times(generator, factor)
        comparison = Comparison(measurer, "latency", 1e-3, clock, plain)
        comparison.measure(other, Estimate(1.0, 1.0, 1.0))
        wins += is_clear(comparison.cost(other))
        longest = max(longest, len(other.rounds))
    return wins, longest


def test_a_large_win_is_found_on_a_busy_machine_and_chance_is_not_taken_for_one():
    wins, longest = comparisons(0.66)
    assert wins >= 27
    assert longest > 7
    wins, _ = comparisons(1.0)
    assert wins <= 5
