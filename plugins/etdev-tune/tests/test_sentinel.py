"""A busy or throttled target is noticed."""

import tracemalloc

from etdev_tune.measurer import Sentinel
from etdev_tune.target.facts import sentinel_ns

QUIET = (10_000_000, 10_400_000, 10_100_000)


def test_a_quiet_target_disturbs_nothing():
    sentinel = Sentinel()
    assert [sentinel.disturbs(QUIET) for _ in range(3)] == [False] * 3
    assert (sentinel.judged, sentinel.disturbed, sentinel.is_busy) == (3, 0, False)


def test_a_target_that_slowed_down_is_noticed():
    sentinel = Sentinel()
    assert [sentinel.disturbs(times) for times in (QUIET, (*QUIET, 20_000_000))] == [False, True]
    assert sentinel.disturbed == 1


def test_a_target_that_was_slow_from_the_start_is_noticed_within_one_measurement():
    assert Sentinel().disturbs((10_000_000, 15_000_000))


def test_a_target_that_is_mostly_disturbed_is_busy():
    sentinel = Sentinel()
    busy = [sentinel.is_busy for _ in range(6) if sentinel.disturbs((10_000_000, 20_000_000))]
    assert busy == [False] * 4 + [True] * 2


def test_the_fixed_calculation_takes_no_memory():
    tracemalloc.start()
    sentinel_ns()
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
