"""The comparison with eager: the largest error, infinities, nan, and what can't be compared."""

from __future__ import annotations

import math

import pytest
import torch

from etdev.errors import RunError
from etdev.upstream.trees import flat
from etdev.verify.tolerance import OutputError, Tolerance, compare, mismatch

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("output", "eager", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.5], OutputError(0.5, 2.5)),
        ([1.0, INF, -INF], [1.0, INF, -INF], OutputError(0.0, INF)),
        ([INF], [-INF], OutputError(INF, INF)),
        ([1.0], [INF], OutputError(INF, INF)),
        ([], [], OutputError(0.0, 0.0)),
    ],
)
def test_the_largest_error_counts_and_equal_infinities_are_none(output, eager, expected):
    assert compare([torch.tensor(output)], [torch.tensor(eager)]) == [expected]


def test_nan_on_both_sides_is_not_an_error():
    both = torch.tensor([1.0, NAN])
    (difference,) = compare([both], [both])
    assert difference.max_error == 0


@pytest.mark.parametrize(("output", "eager"), [([0.0, NAN], [0.0, 1.0]), ([0.0, 1.0], [0.0, NAN])])
def test_nan_on_one_side_is_an_error_of_nan(output, eager):
    (difference,) = compare([torch.tensor(output)], [torch.tensor(eager)])
    assert math.isnan(difference.max_error)


def test_numbers_and_other_dtypes_are_compared_too():
    outputs = [3, True, torch.tensor([200], dtype=torch.uint8), torch.tensor([2**40])]
    eager = [4, True, torch.tensor([100], dtype=torch.uint8), torch.tensor([2**40 + 1])]
    assert [d.max_error for d in compare(outputs, eager)] == [1.0, 0.0, 100.0, 1.0]


def test_a_different_shape_is_infinitely_far_even_if_it_broadcasts():
    first, second = compare([torch.ones(2), torch.ones(1, 3)], [torch.ones(2), torch.ones(3)])
    assert (first.max_error, second.max_error) == (0.0, INF)


def test_a_different_number_of_outputs_is_not_a_match():
    with pytest.raises(RunError) as caught:
        compare([torch.ones(2)], [torch.ones(2), torch.ones(2)])
    assert str(caught.value) == (
        "check: 1 outputs against 2 of eager; name the model that this .pte was lowered from"
    )


def test_flat_follows_the_order_of_a_pte():
    nested = {"a": (1, [2, None]), "b": 3}
    assert flat(nested) == [1, 2, 3]


@pytest.mark.parametrize(
    ("value", "departs"), [(1.0, False), (1.5, False), (1.6, True), (INF, True), (NAN, True)]
)
def test_an_error_above_the_tolerance_is_a_mismatch_and_nan_always_is(value, departs):
    found = mismatch([torch.tensor(value)], [torch.tensor(1.0)], Tolerance(0.5))
    assert (found is not None) is departs


@pytest.mark.parametrize(
    ("value", "eager", "told"),
    [
        ([1.0, NAN, NAN], [1.0, 2.0, 3.0], "is NaN at [1], in eager PyTorch 2 (2 such values)"),
        ([[1.0, 2.0]], [[1.0, INF]], "is 2 at [0, 1], in eager PyTorch inf"),
        (-INF, INF, "is -inf, in eager PyTorch inf"),
        ([1e308], [-1e308], "is off by inf (largest value 1e+308, tolerance 1.0e+304)"),
        ([2 + 1j], [2 + 3j], "is off by 2 (largest value 3.61, tolerance 3.6e-04)"),
    ],
)
def test_a_mismatch_says_in_words_what_is_no_number(value, eager, told):
    kind = torch.complex64 if isinstance(torch.tensor(value).sum().item(), complex) else None
    value, eager = (torch.tensor(x, dtype=kind or torch.float64) for x in (value, eager))
    assert mismatch([value], [eager], Tolerance(1e-4)) == f"output 0 {told}"
