"""One weight that several layers of a delegate read, each in its own way."""

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees
from torch import nn

pytest.importorskip("openvino", reason="openvino is not installed")

from etdev_openvino.plugin import OpenVinoPlugin

from etdev import Lowerer

layers = nn.functional
W, KERNEL = torch.randn(8, 8), torch.randn(4, 4, 3, 3)
X, IMAGE = torch.randn(8, 8), torch.randn(1, 4, 8, 8)


class Reads(nn.Module):
    """A function of inputs and weights, which are buffers."""

    def __init__(self, function, *weights):
        super().__init__()
        self.function = function
        for index, weight in enumerate(weights):
            self.register_buffer(f"weight_{index}", weight)

    def forward(self, x):
        return self.function(x, *self.buffers())


CASES = {
    "sum": (lambda x, w: layers.linear(x, w) + x @ w, X, W),
    "chain": (lambda x, w: layers.linear(x, w) @ w, X, W),
    "four": (
        lambda x, w: (layers.linear(x, w), x @ w, layers.linear(x + 1, w), (x + 1) @ w),
        X,
        W,
    ),
    "on both sides": (lambda x, w: w @ x + w.T @ x + x @ w + x @ w.T, X, W),
    "with a bias": (lambda x, w: torch.addmm(x[0], x, w) + torch.addmm(x[0], x, w.T), X, W),
    "equal bytes": (lambda x, w, v: layers.linear(x, w) + x @ v, X, W, W.clone()),
    "convolutions": (
        lambda x, w: layers.conv_transpose2d(layers.conv2d(x, w), w),
        IMAGE,
        KERNEL,
    ),
    "kernels": (
        lambda x, w: layers.conv2d(x, w) + layers.conv2d(x, w.transpose(0, 1)),
        IMAGE,
        KERNEL,
    ),
    "groups": (
        lambda x, w: (
            layers.conv2d(x, w, groups=2) + layers.conv_transpose2d(x, w, groups=2)[..., 2:-2, 2:-2]
        ),
        IMAGE,
        KERNEL[:, :2],
    ),
}


@pytest.mark.slice(
    "sum-f32_all",
    "four-bf16",
    "on both sides-f32_all",
    "with a bias-bf16",
    "kernels-f32_all",
    "groups-bf16",
)
@pytest.mark.parametrize("precision", ["f32_all", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_a_weight_is_read_in_several_ways(case, precision):
    function, x, *weights = CASES[case]
    module = Reads(function, *weights)
    lowered = Lowerer([OpenVinoPlugin(precision=precision)]).lower(module, (x,))
    assert len(lowered.plan.partitions) == 1
    assert not lowered.plan["forward"].fallback
    lowered.verify([(x,), (x * 2 - 1,)])


def test_a_weight_that_is_read_in_one_way_is_stored_once():
    def size(*weights):
        module = Reads(lambda x, *w: layers.linear(layers.linear(x, w[0]), w[-1]), *weights)
        lowered = Lowerer([OpenVinoPlugin()]).lower(module, (torch.randn(2, 256),))
        return len(lowered.to_executorch().buffer)

    weight = torch.randn(256, 256)
    assert size(weight) < size(weight, torch.randn(256, 256)) - weight.nbytes / 2


def test_a_gathered_table_is_not_stored_again_for_the_layer_that_reads_it_too():
    table = torch.randn(512, 64)
    module = Function(lambda i: layers.linear(layers.embedding(i, table), table))
    lowered = Lowerer([OpenVinoPlugin()]).lower(module, (torch.tensor([[1, 2, 3]]),))
    assert len(lowered.to_executorch().buffer) < table.nbytes * 3 / 2
    assert_agrees(lowered, module, (torch.tensor([[1, 2, 3]]),), (torch.tensor([[9, 0, -1]]) % 9,))
