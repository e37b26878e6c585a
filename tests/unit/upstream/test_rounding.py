"""Rounding by other kernels: random where they differ, and nowhere else."""

from __future__ import annotations

import pytest
import torch

from etdev.upstream.rounding import RandomRounding

OPS = torch.ops.quantized_decomposed
LIMITS = (0, -128, 127, torch.int8)


def rounded(op, *values, units=4):
    with RandomRounding(torch.Generator().manual_seed(0), units):
        return [op(*values) for _ in range(16)]


@pytest.mark.parametrize(
    ("scale", "several"), [(0.5, [False, True, False]), (torch.tensor(0.5), [False, True, True])]
)
def test_quantisers_round_near_ties_either_way_and_all_if_the_step_is_computed(scale, several):
    x = torch.tensor([0.5, 0.76, 0.7])
    op = OPS.quantize_per_tensor.tensor if torch.is_tensor(scale) else OPS.quantize_per_tensor
    zero = torch.tensor(0) if torch.is_tensor(scale) else 0
    made = torch.stack(rounded(lambda x: op(x, scale, zero, *LIMITS[1:]), x))
    assert [len(set(column.tolist())) > 1 for column in made.T] == several


def test_each_channel_has_its_step():
    x, scales = torch.tensor([[0.5, 0.76], [1.0, 1.52]]), torch.tensor([0.5, 1.0])
    limits = (torch.zeros(2, dtype=torch.int64), 0, *LIMITS[1:])
    made = torch.stack(rounded(lambda x: OPS.quantize_per_channel(x, scales, *limits), x))
    assert [len(set(made[:, n, m].tolist())) for n in (0, 1) for m in (0, 1)] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    "op", [lambda x: x.sin(), lambda x: x @ x.T, lambda x: x.sum(1), lambda x: x.softmax(1)]
)
def test_sums_and_functions_are_off_by_a_few_units_and_equal_results_stay_equal(op):
    x = torch.tensor([[1.0, 2.0, -4.0], [1.0, 2.0, -4.0]]) / 3
    made = rounded(op, x)
    assert not all(torch.equal(own, op(x)) for own in made)
    for own in made:
        assert torch.equal(own[0], own[1])
        torch.testing.assert_close(own, op(x), rtol=1e-6, atol=1e-6)
    assert all(torch.equal(own, op(x)) for own in rounded(op, x, units=0))


def test_arithmetic_is_the_same_everywhere():
    def op(x):
        return (x * 3 - x / 7 + 1).floor().abs().amax(1)

    x = torch.randn(3, 4)
    assert all(torch.equal(own, op(x)) for own in rounded(op, x))
