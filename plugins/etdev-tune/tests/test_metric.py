"""A user's metric gets what it takes, and what it can't return is refused by its name."""

from __future__ import annotations

import pytest
import torch
from etdev_tune.metric import Call, Metric

from etdev import TuneError

X = torch.arange(4.0)
CALLS = [Call((X,), (X + 1,))]


def closeness(outputs, expected):
    return -float((outputs[0] - expected[0]).abs().max())


@pytest.mark.parametrize(
    ("function", "figure"),
    [
        (lambda outputs: outputs[0].sum(), 14.0),
        (closeness, -1.0),
        (lambda outputs, expected, inputs: (outputs[0] - inputs[0]).max(), 2.0),
        (lambda outputs, k=3: outputs[0][k], 5.0),
        (lambda outputs, *, k=3: outputs[0][k], 5.0),
        (lambda outputs, expected=None: len(expected), 1.0),
    ],
)
def test_it_is_called_with_what_it_takes(function, figure):
    assert Metric(function)([[X + 2]], CALLS) == figure


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda outputs: outputs[9], "raised IndexError: list index out of range"),
        (lambda outputs: outputs[0], "raised ValueError: only one element tensors"),
        (lambda outputs: "good", "raised ValueError: could not convert string to float"),
        (lambda outputs: float("nan"), "returned nan; return a finite number"),
        (lambda a, b, c, d: 0, "missing 1 required positional argument"),
    ],
)
def test_what_is_no_figure_is_refused(function, what):
    with pytest.raises(TuneError, match=what):
        Metric(function)([[X]], CALLS)
