"""Attributes: a module whose calls assign to what torch.export forgets is refused by name."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from etdev import Lowerer
from etdev.edge.source import Method
from etdev.errors import EtdevWarning, SourceError
from etdev.quirks import QUIRKS
from etdev.quirks.table import Table

X = torch.tensor([1.0, 2.0, 3.0])
CURE = "keep what changes in buffers, and write to them in place, as self.state.copy_(new) does"


class Holder(nn.Module):
    """A module that holds state of several kinds, and what is done with it."""

    def __init__(self, call):
        super().__init__()
        self.register_buffer("state", torch.ones(3))
        self.register_buffer("count", torch.tensor(0))
        self.calls, self.parts, self.plain = 0, [], torch.ones(3)
        self.inner = SimpleNamespace(plain=torch.ones(3), calls=0)
        self.call = [call]

    def forward(self, x):
        return self.call[0](self, x)


def counts(self, x):
    self.calls += 1
    return x * self.calls


def collects(self, x):
    self.parts.append(x)
    return sum(self.parts)


def replaces(self, x):
    self.plain = self.plain * x
    return self.plain + 1


def replaces_within(self, x):
    self.inner.plain = self.inner.plain * x
    return self.inner.plain + 1


def returns_the_old(self, x):
    old, self.state = self.state, self.state + x
    return old


def makes_it_a_float(self, x):
    self.count = self.count + x.mean() / 4
    return x * self.count


def grows(self, x):
    self.state = torch.cat([self.state, x])
    return self.state.sum()


def replaces_data(self, x):
    self.state.data = self.state * x
    return self.state + 1


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (replaces_data, "self.state"),
        (counts, "self.calls"),
        (collects, "self.parts[0]"),
        (replaces, "self.plain"),
        (replaces_within, "self.inner.plain"),
        (returns_the_old, "self.state"),
        (makes_it_a_float, "self.count"),
        (grows, "self.state"),
    ],
)
@pytest.mark.filterwarnings("ignore:The tensor attribute")
def test_calls_that_assign_to_what_is_forgotten_are_refused(call, name):
    with pytest.raises(SourceError) as caught:
        Method("forward", Holder(call), (X,)).export(Table(QUIRKS))
    told = f"forward: its calls assign to {name}, and torch.export forgets it; {CURE}"
    assert str(caught.value) == told


def test_a_number_that_changes_nothing_yet_is_named_once():
    def logs(self, x):
        self.inner.calls += 1
        return x * 2

    module = Holder(logs)
    with pytest.warns(EtdevWarning) as told:
        Method("forward", module, (X,)).export(Table(QUIRKS))
    expected = f"forward: its calls assign to self.inner.calls, which stays as it is now; {CURE}"
    own = [warning for warning in told if warning.category is EtdevWarning]
    assert [str(warning.message) for warning in own] == [expected]
    assert not module._forward_hooks
    assert not module._forward_pre_hooks


@pytest.mark.filterwarnings("ignore:The tensor attribute")
def test_what_is_assigned_and_not_read_by_later_calls_is_fine():
    def stashes(self, x):
        self.calls, self.plain, self.parts = x.shape[0], x * 2, [x]
        return self.plain + self.state

    with warnings.catch_warnings():
        warnings.simplefilter("error", EtdevWarning)
        program = Method("forward", Holder(stashes), (X,)).export(Table(QUIRKS))
    assert torch.equal(program.module()(X), X * 2 + 1)


def test_a_buffer_may_be_assigned_to():
    def carries(self, x):
        self.state = self.state * x
        return self.state + 1

    module = Holder(carries)
    lowered = Lowerer([]).lower(module, (X,))
    lowered.verify(steps=3)
    assert torch.equal(module.state, torch.ones(3))
