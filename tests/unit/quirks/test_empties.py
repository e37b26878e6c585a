"""What has no elements: constants that the runtime can't load, and rows that may be none."""

import pytest
import torch
from support.models.small import Function
from support.quirks import model
from support.toys.runtime import assert_agrees
from torch import nn

from etdev import Lowerer

X = torch.ones(3, 4)


def grown(net, x):
    """Read rows that nothing has been added to yet twice, and return them."""
    return torch.cat([x, net.rows]) * 2, torch.cat([net.rows, x]), net.rows


@pytest.mark.slice("plugins1")
@pytest.mark.parametrize("plugins", [[], ["cpu"]])
@pytest.mark.parametrize(
    "module",
    [
        model(grown, rows=torch.empty(0, 4), unread=torch.empty(2, 0)),
        Function(lambda x: torch.cat([x.flatten().long(), torch.tensor([], dtype=torch.int64)])),
        nn.Sequential(nn.Linear(4, 0), nn.Linear(0, 2)),
    ],
)
def test_they_are_as_in_eager(module, plugins):
    assert_agrees(Lowerer(plugins).lower(module, (X,)), module, (X,), (X * 3,))


@pytest.mark.suite
@pytest.mark.parametrize("plugins", [pytest.param([], marks=pytest.mark.suite), ["cpu"]])
def test_no_rows_are_joined_reduced_and_sorted(plugins):
    def rows(x):
        several = torch.cat([x.relu(), x], 1), torch.cat([x[:, :1], x], -1) * 2, x.sort(1)
        extremes = x.amax(1), x.logsumexp(1, keepdim=True), x[:, None].amin((1, -1)), x.argsort(0)
        joined = torch.cond(x.sum() > 0, _joined, lambda x: _joined(-x), (x,))
        rolled = x.roll((5, -1), (0, 1)), x.roll(3), x[:, :0].roll(1, 1), x.logsumexp((0, 1))
        return several, extremes, joined, rolled, x.log_softmax(0)

    calls = [(torch.randn(count, 4),) for count in (3, 0, 8, 1)]
    sizes = ({0: torch.export.Dim("rows", max=8)},)
    program = torch.export.export(Function(rows), calls[0], dynamic_shapes=(sizes,))
    assert_agrees(Lowerer(plugins).lower(program), rows, *calls)


def _joined(x):
    return torch.cat([x, x * 2], 1)


def test_rows_that_nothing_is_chosen_from_are_joined():
    def chosen(x):
        rows = x[x.sum(1) > 0]
        return torch.cat([rows, rows], 1)

    assert_agrees(Lowerer([]).lower(Function(chosen), (X,)), chosen, (X,), (-X,))
