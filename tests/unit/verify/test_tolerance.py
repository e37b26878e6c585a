"""Tolerances: which values are near enough to PyTorch's, and what is said of others."""

from __future__ import annotations

import math

import pytest
import torch
from support.models.small import Function

from etdev.errors import EtdevError
from etdev.verify.tolerance import QUANTISED, Tolerance

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("value", "departs"), [(1.0, False), (1.5, False), (1.6, True), (INF, True), (NAN, True)]
)
def test_an_error_above_the_tolerance_is_a_mismatch_and_nan_always_is(value, departs):
    found = Tolerance(0.5).mismatch([torch.tensor(value)], [torch.tensor(1.0)])
    assert (found is not None) is departs


@pytest.mark.parametrize(
    ("value", "eager", "told"),
    [
        ([1.0, NAN, NAN], [1.0, 2.0, 3.0], "is NaN at [1], in eager PyTorch 2 (2 such values)"),
        ([[1.0, 2.0]], [[1.0, INF]], "is 2 at [0, 1], in eager PyTorch inf"),
        (-INF, INF, "is -inf, in eager PyTorch inf"),
        ([1e308], [-1e308], "is off by inf at [0] (largest value 1e+308, tolerance 1.0e+304)"),
        ([2 + 1j], [2 + 3j], "is off by 2 at [0] (largest value 3.61, tolerance 3.6e-04)"),
    ],
)
def test_a_mismatch_says_in_words_what_is_no_number(value, eager, told):
    kind = torch.complex64 if isinstance(torch.tensor(value).sum().item(), complex) else None
    value, eager = (torch.tensor(x, dtype=kind or torch.float64) for x in (value, eager))
    assert Tolerance(1e-4).mismatch([value], [eager]) == f"output 0 {told}"


def test_a_dtype_without_a_tolerance_is_an_error_unless_a_number_is_given():
    function = Function(lambda x: x.to(torch.float8_e4m3fn).to(torch.float32))
    program = torch.export.export(function, (torch.ones(2),))
    with pytest.raises(EtdevError, match="float8_e4m3fn: is a dtype that etdev doesn't know"):
        Tolerance.of(program)
    assert Tolerance.of(program, relative=0.5) == Tolerance(0.5)


@pytest.mark.parametrize(
    ("dtype", "rounded", "relative"),
    [
        (torch.int32, (), 0.0),
        (torch.float32, (), 1e-4),
        (torch.float32, ("bfloat16",), 3e-2),
        (torch.float64, (), 1e-9),
        (torch.complex64, (), 1e-4),
    ],
    ids=str,
)
def test_the_coarsest_dtype_of_a_method_and_its_backends_counts(dtype, rounded, relative):
    program = torch.export.export(Function(lambda x: x + x), (torch.ones(2).to(dtype),))
    assert Tolerance.of(program, rounded).relative == relative


def test_weights_in_integers_are_as_exact_as_floats():
    ops, limits = torch.ops.quantized_decomposed, (0.1, 0, -128, 127, torch.int8)
    weight = torch.ones(2, 2, dtype=torch.int8)
    stored = Function(lambda x: x @ ops.dequantize_per_tensor(weight, *limits))
    rounded = Function(lambda x: stored(ops.quantize_per_tensor(x, *limits).float()))
    for module, relative in ((stored, 1e-4), (rounded, QUANTISED)):
        program = torch.export.export(module, (torch.ones(2, 2),))
        assert Tolerance.of(program).relative == relative
