"""Faults of portable kernels: what no plugin takes is computed with a formula, as in PyTorch."""

import math

import pytest
import torch
from models.small import Function
from toys.runtime import assert_agrees

from etdev import Lowerer

ops = torch.ops.quantized_decomposed
NAN = math.nan
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
SCALES, ZEROS = torch.tensor([0.1, 0.05, 0.02]), torch.tensor([1, 0, -2])
LIMITS = (-128, 127, torch.int8)
INTEGERS = torch.arange(-6, 6, dtype=torch.int8).reshape(3, 4)


def agree(function, *calls):
    module = Function(function)
    assert_agrees(Lowerer([]).lower(module, calls[0]), module, *calls)


@pytest.mark.parametrize("factors", [{"beta": 0}, {"beta": 0, "alpha": 2.5}, {"alpha": 0}])
@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (torch.addmm, ((3, 5), (3, 4), (4, 5))),
        (torch.addmm, ((5,), (3, 4), (4, 5))),
        (torch.addmm, ((3, 5), (3, 0), (0, 5))),
        (torch.addbmm, ((3, 5), (2, 3, 4), (2, 4, 5))),
        (torch.addmv, ((3,), (3, 4), (4,))),
    ],
)
def test_what_has_a_factor_of_zero_is_not_read(op, shapes, factors):
    bias, left, right = (torch.randn(shape) for shape in shapes)
    unread = (bias, left * NAN, right) if "alpha" in factors and not factors["alpha"] else (
        torch.full_like(bias, NAN),
        left,
        right,
    )  # fmt: skip
    agree(lambda *inputs: op(*inputs, **factors), (bias, left, right), unread)


def test_integers_have_factors_of_zero():
    left, right = torch.arange(12).reshape(3, 4), torch.arange(20).reshape(4, 5)
    inputs = (torch.ones(3, 5, dtype=torch.int64), left, right)
    agree(lambda *inputs: torch.addmm(*inputs, beta=0, alpha=3), inputs)


def test_scales_of_channels_may_be_float32():
    def both(x, scales, zeros):
        integers = ops.quantize_per_channel(x, scales, zeros, 0, *LIMITS)
        return integers, ops.dequantize_per_channel(integers, scales, zeros, 0, *LIMITS)

    agree(both, (X, SCALES, ZEROS), (X * 100, SCALES * 2, ZEROS))
    agree(both, (X, SCALES.double(), ZEROS), (X * 100, SCALES.double(), ZEROS))


def test_a_tensors_scale_may_be_float32():
    def both(x, scale, zero):
        integers = ops.quantize_per_tensor.tensor(x, scale, zero, *LIMITS)
        return integers, ops.dequantize_per_tensor.tensor(integers, scale, zero, *LIMITS)

    agree(both, (X, SCALES[0], ZEROS[0]), (X * 9, SCALES[1], ZEROS[2]))
    agree(both, (X, SCALES[0], ZEROS[0].int()), (X * 9, SCALES[1], ZEROS[2].int()))


def test_scales_of_tokens_may_be_float32():
    def quantised(x, scales, zeros):
        return ops.quantize_per_token(x, scales[:, None], zeros[:, None], *LIMITS)

    agree(quantised, (X, SCALES, ZEROS), (X * 9, SCALES * 2, ZEROS))
