"""Batches that grow and shrink within one loaded method, in float32 and in int8."""

import random

import pytest
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from support.toys.runtime import assert_agrees
from torch import nn
from torch.export import Dim
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerAxis
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from etdev import Lowerer

BATCHES = [2, 6, 6, 1, 8, 8, 1, *random.Random(0).choices(range(1, 9), k=6)]
SHAPES = ({0: Dim("batch", min=1, max=8)},)


def conv(*layers):
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), *layers)


MODELS = {
    "mean": lambda: conv(nn.AdaptiveAvgPool2d(1)),
    "head": lambda: conv(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)),
    "pools": lambda: conv(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveMaxPool2d(1)),
    "parts": lambda: conv(nn.AdaptiveAvgPool2d(2), nn.BatchNorm2d(6), nn.Hardtanh(0, 1)),
    "layers": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU6(), nn.Linear(16, 4)),
}
# The default run has all of them at once in float32 and one in int8, `make suites` each by itself.
# Of a quantised batch norm, torchao's conversion takes as long as twenty of these tests.
QUICK = [("together", False), ("head", True)]
CASES = [
    *QUICK,
    *(
        pytest.param(name, quantised, marks=pytest.mark.suite)
        for name in MODELS
        for quantised in (False, True)
        if (name, quantised) not in QUICK
    ),
]


class Together(nn.Module):
    """All models in one program."""

    def __init__(self):
        super().__init__()
        self.models = nn.ModuleDict({name: make() for name, make in MODELS.items()})

    def forward(self, x):
        return tuple(model(x) for model in self.models.values())


def int8(module):
    config = get_symmetric_quantization_config()
    program = torch.export.export(module, (torch.randn(4, 3, 8, 8),), dynamic_shapes=SHAPES)
    prepared = prepare_pt2e(program.module(), XNNPACKQuantizer().set_global(config))
    for _ in range(4):
        prepared(torch.randn(4, 3, 8, 8))
    return convert_pt2e(prepared)


@pytest.mark.slice("together-False")
@pytest.mark.parametrize(("name", "quantised"), CASES)
def test_every_batch_is_right_whatever_was_before(name, quantised):
    torch.manual_seed(0)
    module = Together() if name == "together" else MODELS[name]()
    module.eval()
    # The same inputs whatever weights were drawn.
    torch.manual_seed(0)
    module = int8(module) if quantised else module
    calls = [(torch.randn(batch, 3, 8, 8),) for batch in BATCHES]
    lowered = Lowerer(["cpu"]).lower(module, (torch.randn(4, 3, 8, 8),), dynamic_shapes=SHAPES)
    lowered.verify(calls)


def test_a_batch_may_be_as_large_as_declared_when_a_cache_has_the_partitions(tmp_path):
    net, batch = nn.Conv2d(3, 4, 3), Dim("batch", min=1, max=32)
    inputs = (torch.randn(2, 3, 8, 8),)
    lowerer = Lowerer(["cpu"], cache=tmp_path)
    first, second = (lowerer.lower(net, inputs, dynamic_shapes=({0: batch},)) for _ in range(2))
    assert_agrees(second, net, (torch.randn(32, 3, 8, 8),), tolerance=1e-4)
    assert first.to_executorch().buffer == second.to_executorch().buffer


def test_8_bit_weights_of_a_float16_layer_are_left():
    layer = nn.Linear(64, 8).half().eval()
    quantize_(layer, Int8DynamicActivationIntxWeightConfig(torch.int8, PerAxis(0)))
    lowered = Lowerer(["cpu"]).lower(layer, (torch.ones(2, 64).half(),))
    assert lowered.verify(steps=2, strict=True).calls >= 2
