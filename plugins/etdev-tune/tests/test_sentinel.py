"""A busy or throttled target is noticed."""

import tracemalloc

from etdev_tune.measurer import Sentinel
from etdev_tune.target.facts import sentinel_ns

QUIET = (10_000_000, 10_400_000, 10_100_000)


def test_a_quiet_target_disturbs_nothing():
    sentinel = Sentinel.of({"cores": "2"}, 1)
    assert [sentinel.disturbance(QUIET, others) for others in (0.0, 0.4, 1.2)] == ["", "", ""]
    assert sentinel.summary == ""


def test_a_target_that_slowed_down_is_noticed():
    sentinel = Sentinel.of({}, 1)
    sentinel.disturbance(QUIET, None)
    reason = sentinel.disturbance((*QUIET, 20_000_000), None)
    assert reason == "slowed down: a fixed calculation took 2.0 times as long as at best"


def test_a_target_that_was_slow_from_the_start_is_noticed_within_one_measurement():
    reason = Sentinel.of({}, 1).disturbance((10_000_000, 15_000_000), None)
    assert reason.startswith("slowed down")


def test_processors_that_others_use_matter_if_there_are_none_to_spare():
    busy = "busy: everything else used 1.0 processors"
    assert Sentinel.of({"cores": "2"}, 2).disturbance(QUIET, 1.0) == busy
    assert Sentinel.of({"cores": "1"}, 1).disturbance(QUIET, 1.0) == busy
    assert Sentinel.of({"cores": "2"}, 1).disturbance(QUIET, 1.0) == ""


def test_all_measurements_are_summed_up():
    sentinel = Sentinel.of({"cores": "1"}, 1)
    for others in (0.0, 1.0, 2.0):
        sentinel.disturbance(QUIET, others)
    assert sentinel.summary == "2 of 3 measurements were disturbed (busy 2 times)"


def test_the_fixed_calculation_takes_no_memory():
    tracemalloc.start()
    sentinel_ns()
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
