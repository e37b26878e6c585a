"""Models that are channels last: their weights are made contiguous where a backend needs it."""

import pytest
import torch
from torch import nn
from toys.runtime import assert_agrees

import etdev
from etdev import Lowerer

LAST = torch.channels_last


class Net(nn.Module):
    """A small residual network with a constant and views that have a layout of their own."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.place = nn.Parameter(torch.randn(1, 4, 8, 8))
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)

    def forward(self, x):
        y = self.norm(self.first(x)).relu() + self.place
        y = self.second(y) + x
        return self.up(y), y.reshape(y.shape[0], -1), y.mean((2, 3))


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)

    def forward(self, x):
        return self.conv(x).permute(0, 2, 3, 1).view(x.shape[0], -1)


@pytest.mark.parametrize("layout", [LAST, torch.contiguous_format], ids=["last", "contiguous"])
@pytest.mark.parametrize("kind", [Net, Flat, lambda: nn.Sequential(nn.Conv2d(4, 2, 1, bias=False))])
def test_xnnpack_runs_a_model_that_is_channels_last(kind, layout):
    module = kind().eval().to(memory_format=LAST)
    calls = [(torch.randn(2, 4, 8, 8).to(memory_format=layout),) for _ in range(3)]
    try:
        program = torch.export.export(module, calls[0])
    except RuntimeError:
        pytest.skip("PyTorch has no such view")
    before = [value.stride() for value in program.state_dict.values()]
    lowered = Lowerer(["cpu"]).lower(program)
    assert lowered.plan.partitions
    assert_agrees(lowered, module, *calls, tolerance=1e-4)
    assert [value.stride() for value in program.state_dict.values()] == before


def test_the_portable_kernel_runs_it_with_a_contiguous_input():
    module = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Conv2d(6, 2, 3)).to(memory_format=LAST)
    calls = [(torch.randn(2, 4, 8, 8),) for _ in range(3)]
    assert_agrees(Lowerer([]).lower(module, calls[0]), module, *calls)


def test_without_such_weights_a_program_stays_what_it_is():
    from etdev.graph import with_contiguous_weights

    program = torch.export.export(Flat(), (torch.randn(2, 4, 8, 8).to(memory_format=LAST),))
    assert with_contiguous_weights(program) is program
    assert etdev.Lowerer(["cpu"]).lower(program).plan.partitions
