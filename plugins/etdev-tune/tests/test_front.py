"""The front of candidates, and the limits of the one that is written."""

from __future__ import annotations

import pytest
from etdev_tune.front import with_front
from etdev_tune.report import Estimate, Limits, Trial


def trial(name, error, ratio, size, spread=0.01, predicted_ms=None):
    estimate = Estimate(ratio, ratio - spread, ratio + spread)
    figures = {"error": error, "latency_ms": estimate, "against_untuned": estimate}
    figures["predicted_ms"] = predicted_ms
    return Trial(name, "ran", size_bytes=size, **figures)


def marked(*trials):
    return {t.name: (t.front, t.detail) for t in with_front(trials)}


def test_one_that_another_beats_in_everything_is_not_on_the_front():
    found = marked(trial("a", 0.0, 1.0, 100), trial("b", 0.1, 0.5, 50), trial("c", 0.2, 0.8, 60))
    assert {name for name, (front, _) in found.items() if front} == {"a", "b"}


def test_one_that_is_faster_by_noise_alone_is_merged_and_says_with_which():
    found = marked(trial("a", 0.01, 0.50, 100), trial("b", 0.02, 0.495, 100))
    assert found == {"a": (True, ""), "b": (False, "as a, within noise")}
    clearly = marked(trial("a", 0.01, 0.50, 100), trial("b", 0.02, 0.40, 100))
    assert clearly["b"] == (True, "")


def test_one_that_is_clearly_faster_than_the_front_is_not_merged_with_one_in_between():
    chain = (
        trial("a", 0.01, 0.500, 100),
        trial("b", 0.02, 0.485, 100),
        trial("c", 0.03, 0.47, 100),
    )
    found = marked(*chain)
    assert [front for front, _ in found.values()] == [True, False, True]


def test_a_smaller_one_is_kept_however_slow():
    assert marked(trial("a", 0.01, 0.5, 100), trial("b", 0.02, 9.0, 50))["b"] == (True, "")


def test_of_equal_ones_one_is_on_the_front():
    found = marked(trial("a", 0.01, 0.5, 100), trial("b", 0.01, 0.5, 100))
    assert sorted(front for front, _ in found.values()) == [False, True]


def test_errors_of_rounding_are_no_reason_to_be_on_the_front():
    found = marked(trial("a", 3e-7, 1.0, 100), trial("b", 2e-7, 5.0, 100))
    assert found == {"a": (True, ""), "b": (False, "")}


def test_one_that_is_hardly_more_exact_is_not_on_the_front():
    found = marked(trial("a", 0.0100, 1.0, 100), trial("b", 0.0102, 0.5, 100))
    assert found == {"a": (False, ""), "b": (True, "")}


@pytest.mark.parametrize(
    ("error", "ratio", "size"),
    [(0.0102, 0.5, 50), (0.009, 0.505, 50), (0.009, 0.4, 101)],
    ids=["error", "latency", "size"],
)
def test_a_mixed_configuration_beats_no_uniform_scheme_by_noise(error, ratio, size):
    mixed, uniform = trial("mixed", error, ratio, size, predicted_ms=1.0), ("u", 0.01, 0.5, 100)
    assert marked(mixed, trial(*uniform))["u"] == (True, "")
    assert not marked(mixed, trial(*uniform, predicted_ms=1.0))["u"][0]
    better = trial("mixed", 0.009, 0.4, 50, predicted_ms=1.0)
    assert not marked(better, trial(*uniform))["u"][0]


def test_one_that_failed_is_on_no_front():
    failed = Trial("8da4w", "failed", "crash: SIGSEGV")
    assert marked(trial("a", 0.01, 0.5, 100), failed)["8da4w"] == (False, "crash: SIGSEGV")


@pytest.mark.parametrize(
    ("limits", "excess"),
    [
        (Limits(error=0.01, metric=0.9, size_bytes=100), ""),
        (Limits(error=0.009), "error above 0.009"),
        (Limits(size_bytes=99), "larger than 99 B"),
        (Limits(metric=0.95), "metric below 0.95"),
    ],
)
def test_limits_name_the_one_that_is_exceeded(limits, excess):
    assert limits.excess(0.01, 0.9, 100) == excess
    assert Limits(error=1.0).excess(float("nan"), None, 100) == "error above 1"
