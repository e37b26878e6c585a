"""Parts of a model that are alike move together, and pins say exactly which."""

from __future__ import annotations

import pytest
import torch
from etdev_tune.units import pins_of, shapes_of, shifts_of, units_of
from torch import nn

from etdev import Lowerer


class Block(nn.Module):
    """A product, a ReLU and a softmax."""

    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return torch.softmax(torch.relu(self.linear(x)) + x, -1)


class Blocks(nn.Module):
    """Two blocks that are alike, one that is larger, and a ReLU beside them."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(4), Block(4)])
        self.large = Block(8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return torch.relu(self.large(torch.cat([x, x], -1)))


MODEL = (Blocks().eval(), (torch.randn(2, 4),))


@pytest.fixture(scope="module")
def units():
    decision = Lowerer(["cpu"]).decide(*MODEL)
    return units_of(decision.plan, shapes_of(decision.programs))


def owners_of(units):
    return {unit.key: unit.owner for unit in units}


def every_shift(units):
    return list(shifts_of(units, owners_of(units), ["cpu"]))


def keys(units, op, module=""):
    return {u.key for u in units if op in u.key[2] and u.key[1].startswith(module)}


def test_a_unit_is_an_op_in_a_module_with_what_it_computes(units):
    (large,) = [u for u in units if u.key[1:] == ("large.linear", "aten.linear.default")]
    assert (large.owner, large.wanted) == ("cpu", {"cpu"})
    assert "[2, 8]" in large.shapes
    (relu,) = [u for u in units if u.key[1:] == ("", "aten.relu.default")]
    assert relu.shapes == "aten.relu.default [[[2, 8]]] [[2, 8]]"


def test_like_units_move_together_by_op_by_shape_and_by_module(units):
    shifts = {shift.name: set(shift.owners) for shift in every_shift(units)}
    assert shifts["aten.linear.default to portable"] == keys(units, "linear")
    assert shifts["aten.linear.default of blocks.0.linear and 1 like it to portable"] == keys(
        units, "linear", "blocks"
    )
    assert shifts["blocks to portable"] == keys(units, "", "blocks.")
    assert shifts["large to portable"] == keys(units, "", "large")
    every = [frozenset(shift.owners.items()) for shift in every_shift(units)]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("name", ["aten.linear.default to", "blocks to", "aten.relu.default of"])
def test_pins_move_these_units_and_no_others(units, name):
    """Planned with the pins of a change, exactly the units of the change are kept from their owner.

    Others may lose it too: XNNPACK doesn't take each op by itself.
    """
    before = owners_of(units)
    shifts = [s for s in every_shift(units) if s.name.startswith(name)]
    assert shifts
    for shift in shifts:
        decision = Lowerer(["cpu"], pins=pins_of(units, shift.owners)).decide(*MODEL)
        entries = [e for e in decision.plan["forward"].ledger if e.op != "getitem"]
        pinned = {("forward", e.module, e.source_op): e.pin.plugin for e in entries if e.pin}
        kept = {key: owner for key, owner in pinned.items() if owner != before[key]}
        assert kept == shift.owners


def test_what_computes_nothing_is_not_moved_alone(units):
    assert any("cat" in unit.key[2] for unit in units)
    assert not any(shift.name.startswith("aten.cat") for shift in every_shift(units))


def test_no_pins_where_nothing_changes(units):
    assert pins_of(units, owners_of(units)) == ()
