"""Inputs of a method: none at all, and those that the runtime can't be given."""

import pytest
import torch
from torch import nn
from torch.export import Dim
from toys.runtime import assert_agrees

from etdev import Lowerer
from etdev.errors import LoweringError

ORDERS = ([], ["cpu"])


class Counter(nn.Module):
    """Counts its calls, with several constants."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self):
        return self.count.add_(1) * 1.5 + 2.5


@pytest.mark.parametrize("plugins", ORDERS)
def test_a_method_without_inputs_has_its_constants(plugins):
    assert_agrees(Lowerer(plugins).lower(Counter(), ()), Counter(), *[()] * 3)


class Times(nn.Module):
    """A product with whatever it is given."""

    def forward(self, x, n):
        return x * 2 if isinstance(n, str) else x * n


@pytest.mark.parametrize(
    ("n", "dynamic", "message"),
    [
        (
            3,
            Dim.DYNAMIC,
            "edge conversion: input 'n' of method 'forward' is a Python number that may change, "
            "which ExecuTorch's runtime can't be given; make it a tensor and read it with .item(), "
            "or export it with one value",
        ),
        (
            "twice",
            None,
            "edge conversion: input 'n' of method 'forward' is the string 'twice', which "
            "ExecuTorch's runtime can't be given; leave it out of the method's inputs",
        ),
    ],
    ids=["number", "string"],
)
def test_an_input_that_the_runtime_cannot_be_given_is_refused(n, dynamic, message):
    with pytest.raises(LoweringError) as caught:
        Lowerer([]).plan(Times(), (torch.ones(2), n), dynamic_shapes=(None, dynamic))
    assert str(caught.value) == message


@pytest.mark.parametrize("plugins", ORDERS)
@pytest.mark.parametrize("n", [3, 2.5, True])
def test_a_number_that_never_changes_is_an_input(n, plugins):
    inputs = (torch.randn(2, 3), n)
    assert_agrees(Lowerer(plugins).lower(Times(), inputs), Times(), inputs)


@pytest.mark.parametrize("plugins", ORDERS)
def test_volumes_that_a_model_stores_channels_last_are_contiguous(plugins):
    class Volumes(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv3d(2, 3, 2)

        def forward(self, x):
            last = x.to(memory_format=torch.channels_last_3d)
            return torch.relu(self.conv(last)), last.clone() * 2, torch.zeros_like(last) + x

    model = Volumes().to(memory_format=torch.channels_last_3d)
    x = torch.randn(1, 2, 3, 4, 5)
    assert_agrees(Lowerer(plugins).lower(model, (x,)), model, (x,), (x + 1,))
