"""Mixtures of schemes, as a search predicts them."""

from __future__ import annotations

import itertools

import pytest
from etdev_tune.precision.layers import Layer
from etdev_tune.precision.mixtures import Mixtures, Saving


def layer(name, work):
    return Layer(name, "linear", f"{name}.weight", (work, 1), (name,), work)


@pytest.fixture
def mixtures():
    layers = {name: layer(name, work) for name, work in (("a", 10), ("b", 20), ("c", 70))}
    errors = {
        **{("a", "8"): 0.02, ("b", "8"): 0.001, ("c", "8"): 0.003},
        **{("a", "4"): 0.1, ("b", "4"): 0.01, ("c", "4"): 0.05},
    }
    every = tuple(layers)
    savings = {"8": Saving(every, 0.5, 0.7), "4": Saving(every, 0.6, 0.85)}
    return Mixtures(layers, errors, savings, limit=0.012)


def test_the_path_holds_the_best_mixture_of_every_error(mixtures):
    """The search by brute force knows no better mixture than the next on the path, up to 5 %."""
    every = [
        {name: scheme for name, scheme in zip("abc", chosen, strict=True) if scheme}
        for chosen in itertools.product(("", "8", "4"), repeat=3)
    ]
    assert mixtures.path[-1] == dict.fromkeys("abc", "4")
    for layers in mixtures.path:
        as_exact = [o for o in every if mixtures.error(o) <= mixtures.error(layers)]
        assert mixtures.cost(layers) <= min(map(mixtures.cost, as_exact)) + 0.05
    assert {"b": "8", "c": "8"} in mixtures.path


def test_the_best_within_the_limit_comes_first_and_then_the_farthest(mixtures):
    first = mixtures.next()
    inside = [layers for layers in mixtures.path if mixtures.error(layers) <= 0.012]
    assert first == min(inside, key=mixtures.cost)
    seen = []
    while (layers := mixtures.next()) is not None:
        assert layers not in seen
        seen.append(layers)
        mixtures.learn(layers, mixtures.error(layers))
    assert 1 < len(seen) <= len(mixtures.path)


def test_changes_are_cheaper_and_the_cheapest_within_the_limit_is_tried(mixtures):
    start = {"b": "8", "c": "8"}
    changes = list(mixtures.changes(start))
    assert all(mixtures.cost(change) < mixtures.cost(start) for change in changes)
    assert changes[0] == {"b": "8", "c": "4"}
    change = mixtures.change(start, 0.004)
    assert change == {"b": "4", "c": "8"}
    mixtures.learn(change, 0.011)
    assert mixtures.change(start, 0.004) is None


def test_a_slower_scheme_costs_the_more_the_larger_a_weight_is():
    """An embedding multiplies nothing, but its table may be dequantised in every call."""
    layers = {"table": Layer("table", "embedding", "table.weight", (90, 1), ("table",), 0)}
    layers["head"] = Layer("head", "linear", "head.weight", (10, 1), ("head",), 50)
    savings = {"w": Saving(tuple(layers), -2.0, 0.7)}
    mixtures = Mixtures(layers, {("table", "w"): 0.001, ("head", "w"): 0.001}, savings)
    assert mixtures.latency({"table": "w"}) == pytest.approx(1 + 2 * 0.9)
    assert mixtures.latency({"head": "w"}) == pytest.approx(1 + 2 * 0.1)


def test_a_measured_error_corrects_the_predictions(mixtures):
    layers = {"b": "8"}
    mixtures.learn(layers, 0.004)
    assert mixtures.error(layers) == pytest.approx(0.004)
    mixtures.learn(layers, float("inf"))
    assert mixtures.error(layers) == pytest.approx(0.004)
