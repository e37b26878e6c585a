"""Faults of XNNPACK with quantised values and weights."""

from __future__ import annotations

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import nn
from torch.export import Dim
from torch.nn import functional
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    PerGroup,
    quantize_,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from support.quirks import Repro, model, repro
from support.zoo import random

ops = torch.ops.quantized_decomposed
X = random(8, 8)
IMAGE = random(1, 4, 8, 8)


def xnnpack(module, *calls, **options) -> Repro:
    """A repro on XNNPACK with the inputs of its calls."""
    return Repro(module, calls, backend="xnnpack", quantised=True, **options)


def integers(x, scale=0.05, zero=3, low=-128, high=127):
    """Quantise to int8."""
    return ops.quantize_per_tensor(x, scale, zero, low, high, torch.int8)


def floats(q, scale=0.05, zero=3, low=-128, high=127):
    """Dequantise int8."""
    return ops.dequantize_per_tensor(q, scale, zero, low, high, torch.int8)


def eight_bits(*shape):
    """Random weights in int8."""
    made = torch.Generator().manual_seed(0)
    return torch.randint(-128, 127, shape, dtype=torch.int8, generator=made)


def pt2e(module, x, dynamic_shapes=None, **options):
    """Quantise a module with XNNPACK's quantiser, calibrated on an input."""
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**options))
    program = torch.export.export(module.eval(), (x,), dynamic_shapes=dynamic_shapes)
    prepared = prepare_pt2e(program.module(), quantizer)
    prepared(x)
    return convert_pt2e(prepared)


class Twice(nn.Module):
    """A layer that is called on its own output."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(torch.relu(self.layer(x)))


@repro
def quantised_layers_called_twice() -> Repro:
    twice = Twice(nn.Conv2d(4, 4, 3, padding=1))
    return xnnpack(pt2e(twice, IMAGE), IMAGE, expects="error")


@repro
def quantised_linears_called_twice() -> Repro:
    return xnnpack(pt2e(Twice(nn.Linear(8, 8)), X), X)


@repro
def quantised_weights_alone() -> Repro:
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    quantize_(module, Int8WeightOnlyConfig())
    return xnnpack(module, X)


@repro
def odd_rows_of_four_bits() -> Repro:
    options = {"is_per_channel": True, "is_dynamic": True, "weight_qmin": -8, "weight_qmax": 7}
    x = random(2, 7)
    return xnnpack(pt2e(nn.Linear(7, 8), x, **options), x)


def groups(dtype, size):
    """A layer whose weights are quantised in groups."""
    layer = nn.Linear(64, 8).eval()
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=dtype, weight_granularity=PerGroup(size)
    )
    quantize_(layer, config)
    return xnnpack(layer, random(5, 64), expects="error")


@repro
def groups_of_eight_bits() -> Repro:
    return groups(torch.int8, 32)


@repro
def small_groups_of_four_bits() -> Repro:
    return groups(torch.int4, 16)


@repro
def narrow_ranges() -> Repro:
    return xnnpack(model(lambda _, x: floats(integers(x, 0.05, 3, -9, 9))), X)


@repro
def changed_scales() -> Repro:
    return xnnpack(model(lambda _, x: floats(integers(x), 0.1)), X)


@repro
def dequantised_values_read_twice() -> Repro:
    def shared(net, x):
        activation = floats(integers(x))
        output = functional.linear(activation, floats(net.w, 0.01, 0))
        return floats(integers(output, 0.1), 0.1), activation + 1

    return xnnpack(model(shared, w=eight_bits(8, 8)), X, expects="error")


@repro
def weights_of_two_scales() -> Repro:
    both = model(lambda net, x: x * floats(net.w, 0.1) + floats(net.w, 0.3), w=eight_bits(8, 8))
    return xnnpack(both, X)


@repro
def padded_integers() -> Repro:
    padded = model(lambda _, x: functional.pad(floats(integers(x)), (1, 1)).relu())
    return xnnpack(padded, IMAGE, expects="error")


@repro
def one_dimensional_norms_of_integers() -> Repro:
    net = model(lambda net, x: net.norm(floats(integers(x))).relu(), norm=nn.BatchNorm1d(4))
    return xnnpack(net, random(2, 4, 6), expects="error")


@repro
def one_dimensional_integer_kernels() -> Repro:
    def network(net, x):
        kernel = floats(net.own, 0.004, 0, -127, 127)
        for _ in range(2):
            x = functional.conv1d(floats(integers(x)), kernel)
        return floats(integers(x))

    own = eight_bits(4, 4, 3)
    return xnnpack(model(network, own=own), random(1, 4, 9), expects="error")


@repro
def growing_batches_of_integers() -> Repro:
    net = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    shapes = ({0: Dim("rows", min=1, max=8)},)
    calls = [random(rows, 4, 8, 8) for rows in (2, 8, 2)]
    # A step of the last quantiser is 0.002.
    return xnnpack(pt2e(net, calls[0], shapes), *calls, dynamic_shapes=shapes, tolerance=5e-3)


@repro
def shared_dequantisers() -> Repro:
    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x):
            y = self.layer(x)
            # The quantiser leaves both in floats, and XNNPACK has no cumsum.
            return functional.leaky_relu(y), y.cumsum(1)

    image = random(2, 4, 4, 4)
    return xnnpack(pt2e(Features(), image), image)
