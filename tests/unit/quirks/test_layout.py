"""Models that are channels last: their weights are made contiguous where a backend needs it."""

import pytest
import torch
from support.models.small import Function
from support.quirks import model
from support.toys.runtime import assert_agrees
from torch import nn

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


@pytest.mark.slice("last")
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


layers = nn.functional
READERS = (
    lambda x, y, row: (x + 1, x * 2.5 - y, x + row, torch.where(x > 0, x, y), x // 2),
    lambda x, y, row: (torch.cat([x, x], 1), layers.pad(x, (1, 2)), x.flip(1), x[:, 1:3] * 2),
    lambda x, y, row: (x.permute(0, 2, 3, 1) * 3, x.softmax(1), x.cumsum(1), x.argmax(1)),
    lambda x, y, row: (layers.layer_norm(x, (6,)), layers.group_norm(x, 2), x.topk(2, 1)[0]),
    lambda x, y, row: (x * x.mean((2, 3), keepdim=True), torch.zeros_like(x) + x, x.amax(1)),
    lambda x, y, row: layers.batch_norm(x, row[:4], row[1:5] ** 2 + 1, row[2:]),
)


@pytest.mark.slice("plugins1")
@pytest.mark.parametrize("plugins", [[], ["cpu"]])
def test_kernels_that_can_not_read_channels_last_are_given_contiguous_tensors(plugins):
    calls = [
        (torch.randn(2, 4, 5, 6).to(memory_format=LAST), torch.randn(2, 4, 5, 6), torch.randn(6))
        for _ in range(2)
    ]
    module = Function(lambda *inputs: [reader(*inputs) for reader in READERS])
    assert_agrees(Lowerer(plugins).lower(module, calls[0]), module, *calls)


def test_so_are_those_in_branches():
    module = Function(
        lambda x: torch.cond(x.sum() > 0, lambda x: x.flip(1) + 1, lambda x: x.flip(2) * 2, (x,))
    )
    calls = [(sign * torch.rand(2, 4, 5, 6).to(memory_format=LAST),) for sign in (1, -1)]
    assert_agrees(Lowerer([]).lower(module, calls[0]), module, *calls)


class Memory(nn.Module):
    """Buffers that are written, in three orders of their dimensions."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.randn(2, 4, 5, 6).to(memory_format=LAST))
        self.register_buffer("plain", torch.zeros(2, 4, 5, 6))
        self.register_buffer("turned", torch.randn(4, 3).t())

    def forward(self, x):
        y = x + self.last
        self.last.copy_(y * 0.5)
        self.last[:, 1] = 3.0
        self.plain.add_(x)
        self.turned.add_(x[0, :3, 0, :4])
        return y, torch.cat([self.last, self.plain], 1), self.turned * 2


@pytest.mark.slice("plugins1")
@pytest.mark.parametrize("plugins", [[], ["cpu"]])
@pytest.mark.parametrize("layout", [LAST, torch.contiguous_format], ids=["last", "contiguous"])
def test_a_buffer_keeps_its_order(layout, plugins):
    calls = [(torch.randn(2, 4, 5, 6).to(memory_format=layout),) for _ in range(3)]
    lowered = Lowerer(plugins).lower(Memory(), calls[0])
    torch.manual_seed(0)
    assert lowered.verify(calls, steps=3).calls == 3


def test_what_reads_channels_last_stays_without_copies():
    module = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.MaxPool2d(2)).to(memory_format=LAST)
    inputs = (torch.randn(2, 4, 8, 8, dtype=torch.float32).to(memory_format=LAST),)
    manager = Lowerer([]).lower(module[:2], inputs).edge
    ops = [str(n.target) for n in manager.exported_program().graph.nodes if n.op == "call_function"]
    assert len(ops) == 2


def test_without_such_weights_a_program_stays_what_it_is():
    from etdev.graph import with_contiguous_weights

    program = torch.export.export(Flat(), (torch.randn(2, 4, 8, 8).to(memory_format=LAST),))
    assert with_contiguous_weights(program) is program
    assert etdev.Lowerer(["cpu"]).lower(program).plan.partitions


@pytest.mark.parametrize("plugins", [[], ["cpu"]])
def test_what_is_left_of_an_image_when_it_is_pooled_has_any_order(plugins):
    def squeezed(net, x, y):
        return x * net.layer(net.pool(x)).sigmoid(), net.layer(y)

    parts = {"pool": nn.AdaptiveAvgPool2d(1), "layer": nn.Conv2d(4, 4, 1)}
    module = model(squeezed, **parts).to(memory_format=LAST)
    inputs = (torch.randn(2, 4, 5, 5), torch.randn(2, 4, 1, 1))
    inputs = tuple(value.to(memory_format=LAST) for value in inputs)
    assert_agrees(Lowerer(plugins).lower(module, inputs), module, inputs)
