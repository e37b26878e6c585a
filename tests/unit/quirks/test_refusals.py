"""Refusals: what eager PyTorch raises for an index or a value fails at run time, too."""

import math

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees, execute
from torch import nn

from etdev import Lowerer

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
ROWS, PLACES = torch.tensor([1, 3]), torch.tensor([[1, 4]])
functional = nn.functional


def scattered(reduce):
    return lambda x, i: x.scatter_reduce(1, i, x, reduce)


@pytest.mark.slice("good0-bad0", "good3-bad3", "good5-bad5")
@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (lambda x, i: x.index_reduce(0, i, x[:2], "prod"), ROWS, ([1, 4], [-1, 0])),
        (lambda x, i: x.index_fill(0, i, 2.0), torch.tensor([1, -3]), ([1, 4], [-5, 0])),
        (lambda x, i: x.index_fill(0, i, x[0, 0]), ROWS, ([1, 4], [-5, 0])),
        (lambda x, i: x.scatter(1, i, x, reduce="add"), PLACES, ([[1, 5]], [[-1, 0]])),
        (scattered("sum"), PLACES, ([[1, 5]], [[-1, 0]])),
        (scattered("mean"), PLACES, ([[1, 5]], [[-1, 0]])),
        (scattered("amax"), PLACES, ([[1, 5]], [[-1, 0]])),
    ],
)
def test_an_index_out_of_range_fails(function, good, bad):
    module = Function(function)
    lowered = Lowerer([]).lower(module, (X, good))
    assert_agrees(lowered, module, (X, good), (X * 2, good - 1))
    for index in map(torch.tensor, bad):
        with pytest.raises((RuntimeError, IndexError)):
            function(X, index)
        with pytest.raises(RuntimeError, match="failed"):
            execute(lowered, (X, index))


@pytest.mark.slice("good0-bad0")
@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (lambda x: torch.histc(x, 4), X, X * math.inf),
        (lambda x: functional.binary_cross_entropy(x, x * 0.5), X.sigmoid(), X),
        (lambda x: functional.binary_cross_entropy(x, x * 0), X.sigmoid(), X * math.nan),
    ],
)
def test_a_value_that_is_refused_fails(function, good, bad):
    module = Function(function)
    lowered = Lowerer([]).lower(module, (good,))
    assert_agrees(lowered, module, (good,), (good / 2,))
    with pytest.raises(RuntimeError, match=r"between 0 and 1|not finite"):
        function(bad)
    with pytest.raises(RuntimeError, match="failed"):
        execute(lowered, (bad,))
