"""Quantised: torchao's weights and activations of few bits."""

import torch
from torch import nn
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup

from support.zoo import Animal, Zoo, random

ZOO = Zoo()
X = random(3, 64)


def add(name, layers, config, tolerance=None):
    def build():
        torch.manual_seed(0)
        module = nn.Sequential(*layers()).eval()
        quantize_(module, config)
        return module

    ZOO.animals[name] = Animal(build, [(X,)], edges=False, tolerance=tolerance)


def one():
    return [nn.Linear(64, 8)]


def two():
    return [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)]


for bits, granularity in ((4, PerGroup(32)), (4, PerAxis(0)), (8, PerAxis(0))):
    dtype = getattr(torch, f"int{bits}")
    kind = type(granularity).__name__.lower()
    dynamic = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=dtype, weight_granularity=granularity
    )
    # XNNPACK keeps the scales of 4 bits in bfloat16.
    tolerance = 5e-3 if bits == 4 else None
    add(f"dynamic_{bits}_{kind}", one, dynamic, tolerance)
    add(f"two_dynamic_{bits}_{kind}", two, dynamic, tolerance)
for bits in (2, 4, 8):
    add(f"weight_{bits}", one, IntxWeightOnlyConfig(weight_dtype=getattr(torch, f"int{bits}")))
