"""The comparison with eager: the largest error, infinities, nan, and what can't be compared."""

from __future__ import annotations

import math

import pytest
import torch

from etdev.errors import RunError
from etdev.verify.output_error import OutputError, compare

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
