"""Faults of what is emitted: ops without kernels, and checks."""

from __future__ import annotations

import torch
import torch.ao.quantization.fx._decomposed
from torch._higher_order_ops.out_dtype import out_dtype

from support.quirks import Repro, model, repro
from support.zoo import random


@repro
def matrix_checks() -> Repro:
    return Repro(model(lambda _, x: torch.linalg.inv(x)), [random(3, 3)], expects="error")


@repro
def quantised_kernels() -> Repro:
    ops = torch.ops.quantized_decomposed

    def rounded(_, x):
        limits = (0.05, 3, -128, 127, torch.int8)
        return ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *limits), *limits)

    return Repro(model(rounded), [random(3)], expects="error")


@repro
def ops_without_out_variants() -> Repro:
    @torch.library.custom_op("repros::halved", mutates_args=())
    def halved(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    halved.register_fake(torch.empty_like)
    return Repro(model(lambda _, x: halved(x)), [random(3)], expects="error")


@repro
def ops_with_effects() -> Repro:
    def told(_, x):
        torch.ops.aten._print("told")
        return x + 1

    return Repro(model(told), [random(3)], expects="error")


@repro
def reference_representations() -> Repro:
    def product(_, x):
        return out_dtype(torch.ops.aten.mm.default, torch.int32, x, x)

    return Repro(model(product), [torch.ones(3, 3, dtype=torch.int8)], expects="error")
