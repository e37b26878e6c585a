"""Branches: drawn inputs try to take each, and one that no call took is told."""

from __future__ import annotations

import pytest
import torch
from support.models.small import Function

from etdev import Lowerer, VerifyError

X = torch.rand(4, 3) + 1


def branches(limit, wrong=0.0):
    def true(x):
        return x * (1 + wrong if torch.compiler.is_exporting() else 1)

    def forward(x):
        return torch.cond(x.max() > limit, true, lambda x: x.sin(), (x,))

    return Lowerer([]).lower(Function(forward), (X,))


def told(lowered):
    return [text for text in lowered.verify(runner="python").coverage[0].gaps if "branch" in text]


@pytest.mark.parametrize("limit", [-0.5, 0.5, 1.5, 100.0])
def test_inputs_are_found_that_take_each_branch(limit):
    assert told(branches(limit)) == []
    with pytest.raises(VerifyError):
        branches(limit, wrong=0.1).verify(runner="python")


def test_a_branch_that_no_call_takes_is_told_with_its_line():
    line = branches.__code__.co_firstlineno + 5
    (text,) = told(branches(1e9, wrong=0.1))
    assert text == f"branch `true` at test_coverage.py:{line} not taken"


@pytest.mark.parametrize("steepness", [1.0, 1e5])
def test_an_order_of_equal_values_that_pytorch_leaves_open_is_no_fault(steepness):
    def forward(scores, boxes):
        order = (scores * steepness).sigmoid().argsort(descending=True)
        return boxes[order], order

    inputs = (torch.randn(40), torch.randn(40, 4))
    result = Lowerer([]).lower(Function(forward), inputs).verify(runner="python")
    line = forward.__code__.co_firstlineno + 1
    assert result.coverage[0].gaps == (f"equal values at test_coverage.py:{line} not tried",)
    assert result.calls > 3


def test_a_wrong_order_is_a_fault_where_equal_values_may_come_in_any():
    def forward(scores):
        least = scores.sigmoid().argsort()
        return least.flip(0) if torch.compiler.is_exporting() else least

    lowered = Lowerer([]).lower(Function(forward), (torch.randn(40),))
    with pytest.raises(VerifyError, match="output 0 is off by"):
        lowered.verify(runner="python")
