"""Blame: of several delegates the wrong one is named, whichever call of a series shows it."""

from __future__ import annotations

import pytest
import torch
from support.quirks.quantised import pt2e
from support.toys.altered import Altered, AlteredGraph, capped
from torch import nn
from torch.export import Dim

from etdev import Lowerer
from etdev.errors import VerifyError

ROWS = ({0: Dim("rows", min=1, max=8)},)


class Layers(nn.Module):
    """Two layers with ReLUs, and a sum on a portable kernel between them."""

    def __init__(self, first):
        super().__init__()
        self.first, self.second = first, nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x)).cumsum(-1)))


class Sums(Layers):
    """The same of a sum that grows from call to call."""

    def __init__(self, first):
        super().__init__(first)
        self.register_buffer("total", torch.zeros(2, 4))

    def forward(self, x):
        self.total.add_(x.abs())
        return super().forward(self.total)


def positive(module):
    """Make all weights positive, so that larger inputs give larger values."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.abs_()
    return module.eval()


def blamed(lowered, calls):
    """The output that a verification refuses and the part that it blames."""
    with pytest.raises(VerifyError) as caught:
        lowered.verify(calls)
    problem, _, cause = caught.value.what.partition("; ")
    return problem.partition(" is off by ")[0], cause.partition(" is off by ")[0]


def case(kind):
    """A model, its dynamic sizes, and calls of which only the second has large values.

    Sizes grow and shrink, other than those of a state.
    """
    torch.manual_seed(0)
    rows = (2, 2, 2) if kind == "state" else (2, 6, 1)
    calls = [(torch.rand(n, 4) * scale,) for n, scale in zip(rows, (0.1, 5.0, 0.1), strict=True)]
    module = positive((Sums if kind == "state" else Layers)(nn.Linear(4, 4)))
    if kind == "int8":
        module = pt2e(module, *calls[1], ROWS)
    return module, None if kind == "state" else ROWS, calls


CASES = [(kind, place) for kind in ("float", "int8", "state") for place in (0, 1)]


@pytest.mark.slice("float-0")
@pytest.mark.parametrize(("kind", "place"), CASES)
def test_the_delegate_that_one_call_shows_wrong_is_named(kind, place, monkeypatch):
    module, sizes, calls = case(kind)
    plan = Lowerer(["cpu"]).plan(module, calls[0], dynamic_shapes=sizes)
    relus = [entry.node for entry in plan["forward"].ledger if "relu" in entry.op]
    alter = capped(relus[place], (2.0, 8.0)[place])
    monkeypatch.setattr(AlteredGraph, "alter", alter, raising=False)
    lowered = Lowerer([Altered()]).lower(module, calls[0], dynamic_shapes=sizes)
    problem, cause = blamed(lowered, calls)
    assert problem == "step 1: output 0"
    assert cause.startswith(f"delegate altered_{place} (altered, XnnpackBackend): output ")
