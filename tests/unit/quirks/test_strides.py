"""Strides: what torch keeps in an order of its own is right in ExecuTorch's runtime, too."""

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees
from torch import nn

from etdev import Lowerer


@pytest.mark.slice("shape0")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.nonzero(),
        lambda x: x.nonzero() + 1,
        lambda x: x.nonzero().float() / 2,
        lambda x: x.nonzero().to(torch.int32).clone() - 1,
        lambda x: x.nonzero()[:, 0] * 2,
        lambda x: torch.argwhere(x > 0).sum(0),
        lambda x: torch.nonzero(x, as_tuple=True),
    ],
)
@pytest.mark.parametrize("shape", [(6,), (3, 4), (2, 3, 4)])
def test_coordinates_are_right(function, shape):
    calls = [(torch.randn(shape).relu(),), (torch.zeros(shape),), (torch.ones(shape),)]
    assert_agrees(Lowerer([]).lower(Function(function), calls[0]), function, *calls)


class Weighted(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        return torch.relu(self.weight) + x, self.weight.sum(0), torch.sigmoid(x).sum(1)


@pytest.mark.slice("plugins1")
@pytest.mark.parametrize("plugins", [[], ["cpu"]])
@pytest.mark.parametrize(
    "weight", [torch.randn(4).expand(4, 4), torch.randn(4, 4).t()], ids=["expanded", "transposed"]
)
@pytest.mark.parametrize("x", [torch.randn(4, 4).t(), torch.randn(1, 4).expand(4, 4)])
def test_inputs_and_weights_may_be_views(plugins, weight, x):
    module = Weighted(weight).eval()
    program = torch.export.export(module, (x,))
    calls = [(torch.randn(4, 4),) for _ in range(3)]
    lowered = Lowerer(plugins).lower(program)
    assert_agrees(lowered, module, *calls)
    assert lowered.verify().calls >= 3


def test_a_delegate_gives_an_image_of_one_pixel_in_its_sizes():
    def pooled(x):
        pool = torch.nn.functional.max_pool2d(x, 2)
        return pool, pool.sin() + x[:, :, :1, :1]

    x = torch.randn(2, 3, 2, 2).to(memory_format=torch.channels_last)
    assert_agrees(Lowerer(["cpu"]).lower(Function(pooled), (x,)), pooled, (x,))
