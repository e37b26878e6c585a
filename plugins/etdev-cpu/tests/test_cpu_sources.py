"""Products that come from a linear layer, as torch.export notes it, and are none any more."""

import pytest
import torch
from executorch.exir import to_edge
from support.toys.runtime import assert_agrees
from torch import nn
from torch.nn.functional import linear

from etdev import Lowerer

pytestmark = pytest.mark.usefixtures("quick_conversion")

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def constant():
    return torch.arange(64.0).view(8, 8)


class Layers(nn.Module):
    """A function of a layer, a weight, weights for each row, and an input."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.function, self.layer = function, nn.Linear(8, 8)
        self.register_buffer("weight", torch.randn(8, 8))
        self.register_buffer("weights", torch.randn(4, 8, 8))

    def forward(self, x):
        return self.function(self, x)


TRANSPOSED = {
    "of a transpose": lambda net, x: linear(x, net.weight.t()),
    "of a row": lambda net, x: linear(x[0], constant(), net.layer.bias),
    "of each row": lambda net, x: torch.stack([linear(row, net.weight) for row in x]),
    "of a product": lambda net, x: linear(linear(x, net.weight * 2), net.weight.t() * 1),
}
VMAPPED = {
    "a constant": lambda net, x: torch.vmap(lambda row: linear(row, constant()))(x),
    "weights": lambda net, x: torch.vmap(linear)(x, net.weights),
    "weights and biases": lambda net, x: torch.vmap(linear)(x, net.weights, net.weights[:, 0]),
}


def exported(net, x=X, strict=False):
    with torch.no_grad():
        return torch.export.export(net.eval(), (x,), strict=strict)


@pytest.mark.slice("of a transpose", "of each row")
@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_weight_that_is_transposed_already_is_not_transposed_again(name):
    # Only what Dynamo traces says which function it comes from.
    net = Layers(TRANSPOSED[name])
    lowered = Lowerer(["cpu"]).lower(exported(net, strict=True))
    assert lowered.plan["forward"].partitions
    assert_agrees(lowered, net, (X,), (-X,))


@pytest.mark.slice("a constant-True", "weights and biases-False")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", VMAPPED)
def test_a_vmapped_layer_keeps_its_weights_and_its_bias(name, strict):
    net = Layers(VMAPPED[name])
    lowered = Lowerer(["cpu"]).lower(exported(net, strict=strict))
    assert_agrees(lowered, net, (X,), (-X,))


def test_products_of_a_layers_hook_are_products_of_their_own():
    net = Layers(lambda net, x: net.layer(x))
    net.layer.register_forward_hook(lambda layer, inputs, output: output + inputs[0] @ net.weight)
    lowered = Lowerer(["cpu"]).lower(to_edge(exported(net)).exported_program())
    assert_agrees(lowered, net, (X,))


def test_a_layer_that_was_decomposed_before_stays_a_layer():
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8, bias=False))
    edge = to_edge(exported(net)).exported_program()
    assert "aten.addmm.default" in str(edge.graph)
    lowered = Lowerer(["cpu"]).lower(edge)
    assert not lowered.plan["forward"].fallback
    assert_agrees(lowered, net, (X,), (-X,))
