"""Intervals hold what they should, the same ones each time, and chance is not taken for a win."""

import numpy as np
import pytest
from etdev_tune.comparison import is_clear
from etdev_tune.statistics import median_of, ratio_of
from hypothesis import given, settings
from hypothesis import strategies as st

TIMES = st.floats(1e-3, 1e3)
ROUNDS = st.lists(st.lists(TIMES, min_size=1, max_size=5), min_size=1, max_size=5)
FEW = settings(max_examples=30, deadline=None)


def rounds(generator, count, calls, factor=1.0, place=0.04, noise=0.03):
    """Times of processes as they are seen: each lies somewhere else, and calls scatter upwards."""
    return [
        list(
            factor * np.exp(generator.normal(0, place)) * (1 + generator.exponential(noise, calls))
        )
        for _ in range(count)
    ]


@FEW
@given(ROUNDS)
def test_an_interval_holds_its_estimate_and_lies_within_the_times(times):
    estimate = median_of(times)
    everything = [time for calls in times for time in calls]
    assert min(everything) * 0.999 <= estimate.low <= estimate.value <= estimate.high
    assert estimate.high <= max(everything) * 1.001


@FEW
@given(ROUNDS, st.floats(0.1, 10))
def test_the_unit_of_time_does_not_matter(times, factor):
    own, scaled = median_of(times), median_of([[factor * t for t in calls] for calls in times])
    ends = (own.value, own.low, own.high)
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx([factor * end for end in ends])


@FEW
@given(ROUNDS)
def test_the_same_times_give_the_same_interval(times):
    assert median_of(times) == median_of(times)
    assert ratio_of(times, times).value == pytest.approx(1)


@FEW
@given(st.data())
def test_a_ratio_turned_round_is_its_inverse(data):
    count = data.draw(st.integers(1, 5))
    calls = st.lists(TIMES, min_size=1, max_size=5)
    some, others = (data.draw(st.lists(calls, min_size=count, max_size=count)) for _ in range(2))
    there, back = ratio_of(some, others), ratio_of(others, some)
    assert there.value * back.value == pytest.approx(1)
    assert there.low <= there.value <= there.high


def test_what_slows_both_down_does_not_change_a_ratio():
    generator = np.random.default_rng(1)
    some = rounds(generator, 8, 10, place=0)
    slow = [1, 1, 3, 1, 2, 1, 1, 5]
    busy = [[t * s for t in calls] for calls, s in zip(some, slow, strict=True)]
    others = [[2 * t for t in calls] for calls in busy]
    ratio = ratio_of(busy, others)
    assert ratio.value == pytest.approx(0.5)
    assert ratio.high < 0.53


def test_a_real_win_is_clear_and_chance_is_not():
    wins, chances, held = 0, 0, 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        base, same = rounds(generator, 8, 20), rounds(generator, 8, 20)
        better = rounds(generator, 8, 20, factor=0.85)
        ratio = ratio_of(better, base)
        wins += is_clear(ratio)
        held += ratio.low <= 0.85 <= ratio.high
        chances += is_clear(ratio_of(same, base))
    assert wins == 40
    # Of eight pairs: a bootstrap's 95 % are a little less.
    assert held >= 33
    assert chances <= 4


def test_three_rounds_of_a_busy_machine_are_no_win_by_chance():
    generator = np.random.default_rng(0)
    slowed = lambda: [[time] for time in generator.lognormal(0, 0.4, 3)]  # noqa: E731
    assert sum(is_clear(ratio_of(slowed(), slowed())) for _ in range(200)) <= 10
    quiet = ratio_of([[0.95], [0.96], [0.95]], [[1.0], [1.01], [0.99]])
    assert is_clear(quiet)
