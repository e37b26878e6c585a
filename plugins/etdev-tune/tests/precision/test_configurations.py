"""Mixed-precision configurations, as a search predicts them."""

from __future__ import annotations

import itertools

import pytest
from etdev_tune.precision.configurations import Configurations, Saving
from etdev_tune.precision.layers import Layer


def layer(name, work):
    return Layer(name, "linear", f"{name}.weight", (work, 1), (name,), work)


@pytest.fixture
def configurations():
    layers = {name: layer(name, work) for name, work in (("a", 10), ("b", 20), ("c", 70))}
    errors = {
        **{("a", "8"): 0.02, ("b", "8"): 0.001, ("c", "8"): 0.003},
        **{("a", "4"): 0.1, ("b", "4"): 0.01, ("c", "4"): 0.05},
    }
    every = tuple(layers)
    savings = {"8": Saving(every, 0.5, 0.7), "4": Saving(every, 0.6, 0.85)}
    return Configurations(layers, errors, savings, limit=0.012)


def test_the_path_holds_the_best_configuration_of_every_error(configurations):
    """The search by brute force knows no better one than the next on the path, up to 5 %."""
    every = [
        {name: scheme for name, scheme in zip("abc", chosen, strict=True) if scheme}
        for chosen in itertools.product(("", "8", "4"), repeat=3)
    ]
    assert configurations.path[-1] == dict.fromkeys("abc", "4")
    for layers in configurations.path:
        as_exact = [o for o in every if configurations.error(o) <= configurations.error(layers)]
        assert configurations.cost(layers) <= min(map(configurations.cost, as_exact)) + 0.05
    assert {"b": "8", "c": "8"} in configurations.path


def test_the_best_within_the_limit_comes_first_and_then_the_farthest(configurations):
    first = configurations.next()
    inside = [layers for layers in configurations.path if configurations.error(layers) <= 0.012]
    assert first == min(inside, key=configurations.cost)
    seen = []
    while (layers := configurations.next()) is not None:
        assert layers not in seen
        seen.append(layers)
        configurations.learn(layers, configurations.error(layers))
    assert 1 < len(seen) <= len(configurations.path)


def test_changes_are_cheaper_and_the_cheapest_within_the_limit_is_tried(configurations):
    start = {"b": "8", "c": "8"}
    changes = list(configurations.changes(start))
    assert all(configurations.cost(change) < configurations.cost(start) for change in changes)
    assert changes[0] == {"b": "8", "c": "4"}
    change = configurations.change(start, 0.004)
    assert change == {"b": "4", "c": "8"}
    configurations.learn(change, 0.011)
    assert configurations.change(start, 0.004) is None


def test_a_slower_scheme_costs_the_more_the_larger_a_weight_is():
    """An embedding multiplies nothing, but its table may be dequantised in every call."""
    layers = {"table": Layer("table", "embedding", "table.weight", (90, 1), ("table",), 0)}
    layers["head"] = Layer("head", "linear", "head.weight", (10, 1), ("head",), 50)
    savings = {"w": Saving(tuple(layers), -2.0, 0.7)}
    configurations = Configurations(layers, {("table", "w"): 0.001, ("head", "w"): 0.001}, savings)
    assert configurations.latency({"table": "w"}) == pytest.approx(1 + 2 * 0.9)
    assert configurations.latency({"head": "w"}) == pytest.approx(1 + 2 * 0.1)


def test_a_measured_error_corrects_the_predictions(configurations):
    layers = {"b": "8"}
    configurations.learn(layers, 0.004)
    assert configurations.error(layers) == pytest.approx(0.004)
    configurations.learn(layers, float("inf"))
    assert configurations.error(layers) == pytest.approx(0.004)
