"""Parts of a model that are alike move together, and pins say exactly which."""

from __future__ import annotations

import pytest
import torch
from etdev_tune.assignment import least_cost_owners
from etdev_tune.rates import Rate, Rates, Sample, base, predicted
from etdev_tune.structures import pins_of, shifts_of
from etdev_tune.units import Work, owned, units_of, works_of
from torch import nn

from etdev import Lowerer
from etdev.schema.pins import PORTABLE


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
    return units_of(decision.plan, works_of(decision.programs))


def keys(units, op, module=""):
    return {u.key for u in units if op in u.key[2] and u.key[1].startswith(module)}


def test_a_unit_is_an_op_in_a_module_with_what_it_computes(units):
    (large,) = [u for u in units if u.key[1:] == ("large.linear", "aten.linear.default")]
    assert (large.owner, large.wanted) == ("cpu", {"cpu"})
    assert large.work == Work(products=2 * 8 * 8)
    (relu,) = [u for u in units if u.key[1:] == ("", "aten.relu.default")]
    assert relu.work == Work(elements=2 * 8)


def test_like_units_move_together_by_op_by_shape_and_by_module(units):
    shifts = {shift.name: set(shift.owners) for shift in shifts_of(units, ["cpu"])}
    assert shifts["aten.linear.default to portable"] == keys(units, "linear")
    assert shifts["aten.linear.default of blocks.0.linear and 1 like it to portable"] == keys(
        units, "linear", "blocks"
    )
    assert shifts["blocks to portable"] == keys(units, "", "blocks.")
    assert shifts["large to portable"] == keys(units, "", "large")
    every = [frozenset(shift.owners.items()) for shift in shifts_of(units, ["cpu"])]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("name", ["aten.linear.default to", "blocks to", "aten.relu.default of"])
def test_pins_move_these_units_and_no_others(units, name):
    """Planned with the pins of a change, exactly the units of the change are kept from their owner.

    Others may lose it too: XNNPACK doesn't take each op by itself.
    """
    before = owned(units)
    shifts = [s for s in shifts_of(units, ["cpu"]) if s.name.startswith(name)]
    assert shifts
    for shift in shifts:
        decision = Lowerer(["cpu"], pins=pins_of(units, shift.owners)).decide(*MODEL)
        entries = [e for e in decision.plan["forward"].ledger if e.op != "getitem"]
        pinned = {("forward", e.module, e.source_op): e.pin.plugin for e in entries if e.pin}
        kept = {key: owner for key, owner in pinned.items() if owner != before[key]}
        assert kept == shift.owners


def test_what_computes_nothing_is_not_moved_alone(units):
    assert any("cat" in unit.key[2] for unit in units)
    assert not any(shift.name.startswith("aten.cat") for shift in shifts_of(units, ["cpu"]))


def test_no_pins_where_nothing_changes(units):
    assert pins_of(units, owned(units)) == ()


RATES = Rates({"cpu": Rate(1.0, 0.001, 0.0), PORTABLE: Rate(0.0, 0.1, 0.01)})


def test_the_cover_is_the_cheapest_of_all_choices(units):
    """Compared with every choice of owners that treats like units alike."""
    import itertools

    assigned = least_cost_owners(units, ["cpu"], RATES)
    classes = list(dict.fromkeys(unit.structure for unit in units))
    costs = []
    for owners in itertools.product(["cpu", PORTABLE], repeat=len(classes)):
        chosen = dict(zip(classes, owners, strict=True))
        if all(chosen[u.structure] == PORTABLE or "cpu" in u.wanted for u in units):
            costs.append(predicted(units, {u.key: chosen[u.structure] for u in units}, RATES))
    assert predicted(units, assigned, RATES) == pytest.approx(min(costs))


def test_dear_calls_leave_small_work_to_portable_kernels(units):
    dear = Rates({"cpu": Rate(1e6, 0.001, 0.0), PORTABLE: Rate(0.0, 0.1, 0.01)})
    assert set(least_cost_owners(units, ["cpu"], dear).values()) == {PORTABLE}
    cheap = Rates({"cpu": Rate(1e-4, 1e-6, 1e-6), PORTABLE: Rate(0.0, 0.1, 0.01)})
    assert set(least_cost_owners(units, ["cpu"], cheap).values()) == {"cpu", PORTABLE}


def test_rates_are_those_that_the_samples_were_made_of():
    rate = Rate(0.05, 2e-6, 3e-7)
    works = [Work(p, e) for p in (0, 1e4, 1e6) for e in (1e3, 1e5)]
    samples = [Sample("cpu", "", 1, work, rate.of(work, 1)) for work in works]
    fitted = Rates.fitted(samples).owners["cpu"]
    for sample in samples:
        assert fitted.of(sample.work, 1) == pytest.approx(sample.ms, rel=0.02)


def test_a_rate_is_never_negative():
    samples = [Sample("cpu", "", 1, Work(1e6, 0), 1.0), Sample("cpu", "", 1, Work(1e3, 0), 2.0)]
    rate = Rates.fitted(samples).owners["cpu"]
    assert min(rate.call, rate.product, rate.element) >= 0


@pytest.mark.parametrize(
    ("op", "name"), [("aten.add.Tensor", "aten.add"), ("aten::add.out", "aten.add")]
)
def test_kernels_and_nodes_share_a_name(op, name):
    assert base(op) == name
