"""Precision: with `f32_all` delegates compute in float32 on a CPU that would round to bfloat16."""

from xml.etree import ElementTree

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.backend_details import PreprocessResult
from support.models import nets
from support.models.small import Function
from support.toys.runtime import assert_agrees, by_partitioner, delegates
from torch import nn
from torch.nn import functional
from torchao.quantization import IntxWeightOnlyConfig, quantize_

pytest.importorskip("openvino", reason="openvino is not installed")

from etdev_openvino import blob, machine
from etdev_openvino.plugin import OpenVinoPlugin
from executorch.backends.openvino.preprocess import OpenvinoBackend

import etdev
from etdev import Lowerer
from etdev.errors import CompileError, PluginError

EVERYWHERE, ROUNDED = OpenVinoPlugin(), OpenVinoPlugin(precision="bf16")


class Attention(nn.Module):
    """Attention without the guards of PyTorch's own, for which OpenVINO generates code."""

    def __init__(self):
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x):
        heads = [p(x).unflatten(-1, (4, 16)).transpose(1, 2) for p in self.projections]
        query, key, value = heads
        return torch.softmax(query @ key.transpose(-1, -2) / 4, -1) @ value


def attention():
    torch.manual_seed(0)
    return Attention().eval(), (torch.randn(2, 32, 64),)


def products(x, y):
    """Every kind of product that OpenVINO rounds, and a table that it looks up."""
    image = x.reshape(1, 4, 8, 32)
    kernel = y[:, :3].reshape(4, 4, 3, 2)
    return (
        x @ y,
        torch.addmm(y[0], x, y),
        torch.bmm(x.reshape(2, 16, 32), y.reshape(2, 16, 16).mT.repeat(1, 2, 1)),
        functional.conv2d(image, kernel),
        functional.conv_transpose2d(image, kernel),
        functional.interpolate(image, scale_factor=2.0),
        functional.scaled_dot_product_attention(image, image, image),
    )


def every_product():
    torch.manual_seed(0)
    return Function(products), (torch.randn(32, 32), torch.randn(32, 16))


class ScaledNorm(nn.Module):
    """A norm of groups with computed scales, as of diffusion models; OpenVINO ended the process."""

    def __init__(self):
        super().__init__()
        self.norm, self.scales = nn.GroupNorm(2, 8), nn.Linear(16, 16)

    def forward(self, x, time):
        scale, shift = self.scales(time)[..., None, None].chunk(2, 1)
        return self.norm(x) * (1 + scale) + shift


def scaled_norm():
    torch.manual_seed(0)
    return ScaledNorm().eval(), (torch.randn(2, 8, 4, 4), torch.randn(2, 16))


MODELS = {
    "scaled_norm": scaled_norm,
    "products": every_product,
    "attention": attention,
    "mlp": nets.mlp,
    "llama": lambda: nets.llama(layers=1),
    "quantised_conv_net": nets.quantised_conv_net,
    "gru": nets.gru,
}


@pytest.mark.slice("products")
@pytest.mark.parametrize("name", MODELS)
def test_everything_is_computed_in_float32(name):
    module, inputs = MODELS[name]()
    lowered = Lowerer([EVERYWHERE], cache=False).lower(module, inputs)
    left = Lowerer([OpenVinoPlugin(precision="f32")]).plan(module, inputs)["forward"]
    assert len(lowered.plan["forward"].fallback) < len(left.fallback)
    assert_agrees(lowered, module, inputs, tolerance=2e-5)
    for delegate in delegates(lowered.edge):
        net = ElementTree.fromstring(blob.text_of(delegate.processed_bytes))
        layers = [[a.get("name") for a in layer.iter("attribute")] for layer in net.iter("layer")]
        assert all("precise" in notes for notes in layers)


def test_attention_that_openvinos_generator_fails_on_is_compiled_without_it():
    module, inputs = attention()
    lowered = Lowerer([ROUNDED], cache=False).lower(module, inputs)
    assert len(lowered.plan["forward"].partitions) == 1
    assert_agrees(lowered, module, inputs, tolerance=5e-2)


def test_a_blob_that_cannot_be_marked_is_an_error(monkeypatch):
    """A named fake: what a later OpenVINO might export."""
    monkeypatch.setattr(OpenvinoBackend, "preprocess", lambda *_: PreprocessResult(b"other"))
    with pytest.raises(CompileError, match="float32 can't be had, OpenVINO exported a model of"):
        Lowerer([EVERYWHERE], cache=False).lower(*nets.mlp())


def test_a_partitioner_refuses_what_it_cannot_ask_of_executorch():
    with pytest.raises(PluginError, match="has OpenvinoInFloat32 compile forward/Ope") as caught:
        by_partitioner(*nets.mlp(), [EVERYWHERE])
    assert caught.value.cure.endswith('or give the plugin precision = "bf16" or "f32"')


def test_a_partitioner_plans_an_integer_constant_without_its_value():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count.add_(x)
            return self.count * 2

    with torch.no_grad():
        program = torch.export.export(Counts(), (torch.ones(3),))
    composed = etdev.partitioner([ROUNDED])
    to_edge_transform_and_lower(program, partitioner=[composed])
    assert composed.plan is not None


def test_what_this_cpu_rounds_to_is_allowed_for():
    rounded = 3e-2 if machine.has_bfloat16() else 1e-4
    for plugin, expected in ((ROUNDED, rounded), (EVERYWHERE, 1e-4)):
        lowered = Lowerer([plugin], cache=False).lower(*nets.mlp())
        assert lowered.verify(steps=1).tolerance == expected


def test_float32_is_the_default_where_it_can_be_had():
    assert OpenVinoPlugin().precision == "f32_all"
    assert OpenVinoPlugin(device="GPU").precision == "bf16"


def test_activations_of_layers_with_weights_of_8_bits_stay_in_float32():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(64, 8)).eval(), torch.randn(3, 64)
    quantize_(net, IntxWeightOnlyConfig(weight_dtype=torch.int8))
    lowered = Lowerer([EVERYWHERE]).lower(net, (x,))
    assert lowered.plan["forward"].partitions
    assert_agrees(lowered, net, (x,), tolerance=1e-6)
