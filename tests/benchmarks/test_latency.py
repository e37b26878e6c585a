"""The latency benchmark, a slice of it: both sides run, in turn, and compute what eager does."""

import pytest
from benchmarks import latency
from support.models import decoders, nets


@pytest.mark.parametrize(
    "model", [nets.mlp, pytest.param(decoders.cached_decoder, marks=pytest.mark.suite)]
)
def test_both_sides_are_called_as_often_and_compute_what_eager_does(model, monkeypatch):
    monkeypatch.setattr(latency, "LEAST_S", 0)
    monkeypatch.setattr(latency, "MODELS", {"model": model})
    row = latency.measure("model", calls=latency.ROUNDS)
    assert row["calls"] == latency.ROUNDS
    assert row["ratio"] > 0
    assert max(row["max_error"].values()) < 1e-5
