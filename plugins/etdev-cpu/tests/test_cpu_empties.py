"""Dynamic sizes of 0 on XNNPACK: named in a warning, or left to others with `empty = "exact"`."""

import warnings

import pytest
import torch
from etdev_cpu.plugin import CpuPlugin
from executorch.exir import to_edge_transform_and_lower
from models.small import Function
from torch import nn
from torch.export import Dim
from toys.runtime import assert_agrees

import etdev
from etdev import EtdevWarning, Lowerer
from etdev.errors import DeviceError

CALLS = [(torch.randn(rows, 1, 6, 6), torch.randn(2, rows, 4)) for rows in (3, 0, 8)]


class Net(nn.Module):
    """What fails on XNNPACK where there are no rows, and what does not."""

    def __init__(self):
        super().__init__()
        layers = nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AvgPool2d(2), nn.BatchNorm2d(2), nn.MaxPool2d(2)
        self.image, self.linear = nn.Sequential(*layers), nn.Linear(2, 3)

    def forward(self, x, y):
        return self.linear(self.image(x).flatten(1)).softmax(-1), torch.bmm(y, y.mT)


def lowered(plugin, **bounds):
    rows = Dim("rows", max=8, **bounds)
    shapes = ({0: rows}, {1: rows})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = Lowerer([plugin]).lower(net, CALLS[0], dynamic_shapes=shapes)
    return result, [str(w.message) for w in caught if issubclass(w.category, EtdevWarning)]


net = Net().eval()


def test_exact_leaves_to_others_what_fails_without_rows():
    result, said = lowered(CpuPlugin(empty="exact"))
    assert said == []
    assert result.plan["forward"].partitions
    assert_agrees(result, net, *CALLS)


def test_ignored_takes_it_and_names_the_size():
    result, said = lowered(CpuPlugin())
    assert result.plan["forward"].ledger.owned()["CpuPlugin"] > 6
    assert said[0].startswith("CpuPlugin: forward/CpuPlugin_0 is put on cpu (")
    assert said[0].endswith(
        "but XNNPACK's convolution fails where size 0 of input 'x' is 0, which its range allows; "
        'export it with Dim(..., min=1), or write empty = "exact"'
    )
    assert_agrees(result, net, CALLS[0], CALLS[2])


@pytest.mark.parametrize("strict", [False, True])
def test_a_partitioner_names_it_too_and_is_strict_about_it(strict):
    shapes = ({0: Dim("rows", max=8)},)
    layer = nn.Conv2d(3, 2, 3).eval()
    program = torch.export.export(layer, (torch.randn(2, 3, 4, 4),), dynamic_shapes=shapes)
    said = "XNNPACK's convolution fails where size 0 of input 'input_?1?' is 0, which its range"
    sayings = pytest.raises(DeviceError, match=said) if strict else pytest.warns(match=said)
    with sayings:
        to_edge_transform_and_lower(
            program, partitioner=[etdev.partitioner(["cpu"], strict=strict)]
        )
    with sayings:
        Lowerer(["cpu"], strict=strict).plan(program)


def test_a_size_that_is_never_0_is_not_named():
    _, said = lowered(CpuPlugin(), min=1)
    assert said == []


@pytest.mark.parametrize("empty", ["ignored", "exact"])
def test_products_of_no_matrices_are_taken(empty):
    def product(x):
        return torch.bmm(x, x.mT)

    calls = [(torch.randn(rows, 2, 4),) for rows in (3, 0, 8)]
    shapes = ({0: Dim("rows", max=8)},)
    program = torch.export.export(Function(product), calls[0], dynamic_shapes=(shapes,))
    result = Lowerer([CpuPlugin(empty=empty)]).lower(program)
    assert "CpuPlugin" in result.plan["forward"].ledger.owned()
    assert_agrees(result, product, *calls)
