"""The latency benchmark, a slice of it: both sides run, in turn, and compute what eager does."""

import pytest
from benchmarks import latency, prediction
from benchmarks.models import Sample
from support.models import decoders, nets


@pytest.mark.parametrize(
    "model", [nets.mlp, pytest.param(decoders.cached_decoder, marks=pytest.mark.suite)]
)
def test_both_sides_are_called_as_often_and_compute_what_eager_does(model, monkeypatch):
    monkeypatch.setattr(latency, "LEAST_S", 0)
    monkeypatch.setattr(latency, "MODELS", {"model": lambda: Sample(*model())})
    row = latency.measure("model", calls=2)
    assert row["of_executorch"] == row["etdev_ms"] / row["executorch_ms"] > 0
    assert row["calls"].keys() == row["max_error"].keys() == {"etdev", "executorch"}
    assert max(row["max_error"].values()) < 1e-5


def test_equal_times_share_a_rank_and_few_rows_have_no_correlation():
    rows = [{"ms": ms, "predicted_ms": guess} for ms, guess in ((4, 9), (3, 7), (3, 8), (1, 2))]
    assert prediction.spearman(rows) == pytest.approx(0.9486833)
    assert prediction.spearman(
        [{**row, "predicted_ms": -row["ms"]} for row in rows]
    ) == pytest.approx(-1)
    assert prediction.spearman(rows[:3]) is None
