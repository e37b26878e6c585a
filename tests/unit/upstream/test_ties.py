"""The order of equal values: random where PyTorch leaves it open, and nowhere else."""

from __future__ import annotations

import pytest
import torch

from etdev.upstream.ties import ShuffledTies

X = torch.tensor([[0.0, 1, 1, 0, 0, 1], [2, 2, 2, 2, 2, 2]])
OPEN = {
    "argsort": lambda x: (x.sort().values, x.argsort()),
    "sort": lambda x: x.sort(dim=1, descending=True),
    "sort over rows": lambda x: x.T.sort(dim=0),
    "topk": lambda x: x.topk(2),
    "smallest": lambda x: torch.topk(x, k=3, dim=-1, largest=False),
    "kthvalue": lambda x: x.kthvalue(2),
    "median": lambda x: x.median(1, keepdim=True),
    "mode": torch.mode,
}


@pytest.mark.parametrize("name", OPEN)
def test_places_of_equal_values_are_random_and_their_values_are_not(name):
    with ShuffledTies(torch.Generator().manual_seed(0)):
        found = [OPEN[name](X) for _ in range(8)]
    first, places = OPEN[name](X)
    assert all(torch.equal(values, first) for values, _ in found)
    assert len({tuple(made.flatten().tolist()) for _, made in found}) > 1
    if name not in ("argsort", "sort over rows"):
        assert all(
            torch.equal(X.gather(1, made.view(2, -1)), first.view(2, -1)) for _, made in found
        )
    assert places.shape == found[0][1].shape


@pytest.mark.parametrize(
    "op", [lambda x: x.argsort(stable=True), lambda x: x.argmax(1), lambda x: x.max(1).indices]
)
def test_decided_places_stay(op):
    with ShuffledTies(torch.Generator().manual_seed(0)):
        found = [op(X) for _ in range(8)]
    assert all(torch.equal(op(X), made) for made in found)
