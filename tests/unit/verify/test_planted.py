"""Faults of many kinds, planted in what is exported and not in eager PyTorch: who is caught?"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from etdev import Lowerer, VerifyError

ROWS = ({0: Dim("rows", min=1, max=15)},)
X = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
MOST = (torch.arange(3)[:, None] + torch.arange(32)) % 3 != 0
FILL = torch.full((3, 1), -1e9)


class Planted(nn.Module):
    """Computes something else than `right` when it is exported."""

    def __init__(self, right, wrong):
        super().__init__()
        self.right, self.wrong = right, wrong

    def forward(self, *inputs):
        return (self.wrong if torch.compiler.is_exporting() else self.right)(*inputs)


class Third(nn.Module):
    """Is wrong from the third call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        wrong = (self.calls >= 3).to(x.dtype) if torch.compiler.is_exporting() else 0
        return x + wrong * 1e-2 + self.calls * 0


def same(x):
    return x * 1.0


def at_element(x, place):
    marks = torch.zeros(x.numel())
    marks[place] = 1e-2
    return x + marks.reshape(x.shape)


# Each with what is right, what is wrong, inputs, and dynamic sizes if it needs them.
CAUGHT = {
    "at one size in between": (same, lambda x: x + (x.shape[0] % 5) // 4, (X,), ROWS),
    "above a size": (same, lambda x: x + x.shape[0] // 12, (X,), ROWS),
    "at multiples of 4": (same, lambda x: x + 1 - (x.shape[0] % 4 + 3) // 4, (X,), ROWS),
    "at size 1": (same, lambda x: x + 1 // x.shape[0], (X,), ROWS),
    "at ties": (lambda x: x.argmax(-1), lambda x: 31 - x.flip(-1).argmax(-1), (X,), None),
    "at exact multiples": (lambda x: (x / 0.5).ceil(), lambda x: (x / 0.5).floor() + 1, (X,), None),
    "at zero": (lambda x: x.sign(), lambda x: torch.where(x >= 0, 1.0, -1.0), (X,), None),
    "at negative values": (same, lambda x: x.relu(), (X,), None),
    "at integers": (same, lambda x: x + (x == x.round()).float() * 1e-2, (X,), None),
    "in one element of 10,000": (same, lambda x: at_element(x, 5000), (torch.randn(10_000),), None),
    "in the last row": (same, lambda x: at_element(x, slice(64, 96)), (X,), None),
    "in one channel beside a large one": (
        lambda x: torch.cat([x * 1e4, x], -1), lambda x: torch.cat([x * 1e4, x * 1.01], -1),
        (X,), None,
    ),
    "in one output of three": (lambda x: (x, x + 1, x * 2), lambda x: (x, x + 1.01, x * 2), (X,),
                               None),
    "for another integer": (lambda x, p: x + p, lambda x, p: x + 5 + p * 0,
                            (X, torch.tensor([5])), None),
    "by 1e-3 beside a fill": (
        lambda x: torch.cat([x, FILL], -1), lambda x: torch.cat([x + 1e-3, FILL], -1), (X,), None,
    ),
    "beside a majority of fills": (
        lambda x: x.masked_fill(MOST, -1e9), lambda x: (x * 2).masked_fill(MOST, -1e9), (X,), None,
    ),
}  # fmt: skip
# What nothing tries by default.
MISSED = {
    "at values above 100": (same, lambda x: x.clamp(max=100), (X,), None),
    "for one value of an integer": (lambda x, p: x + p, lambda x, p: x + p + (p == 11).long(),
                                    (X, torch.tensor([5])), None),
}  # fmt: skip


def lowered(right, wrong, inputs, shapes):
    shapes = {"inputs": shapes} if shapes else None
    return Lowerer([]).lower(Planted(right, wrong), inputs, dynamic_shapes=shapes)


@pytest.mark.parametrize("kind", CAUGHT)
def test_a_planted_fault_is_refused(kind):
    right, _, inputs, shapes = CAUGHT[kind]
    assert lowered(right, right, inputs, shapes).verify(runner="python").calls
    with pytest.raises(VerifyError):
        lowered(*CAUGHT[kind]).verify(runner="python")


def test_a_fault_from_the_third_call_is_refused():
    with pytest.raises(VerifyError, match="step 2"):
        Lowerer([]).lower(Third(), (X,)).verify(runner="python")


@pytest.mark.parametrize("kind", MISSED)
def test_a_fault_that_nothing_tries_is_not_seen(kind):
    """To be moved up when something does."""
    assert lowered(*MISSED[kind]).verify(runner="python").calls
