"""Parts of a model that are alike move together, and pins say exactly which."""

from __future__ import annotations

import pytest
import torch
from etdev_tune.moves import moves_of
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
def plan():
    return Lowerer(["cpu"]).plan(*MODEL)


def moves(plan):
    return {move.name: move for move in moves_of(plan, plan, ["cpu"])}


def owned(plan):
    """Owners by module and op."""
    return {
        (e.module, e.source_op or e.op): e.holder
        for e in plan["forward"].ledger
        if e.op != "getitem"
    }


def test_parts_move_by_op_by_modules_of_one_name_and_alone(plan):
    names = set(moves(plan))
    assert {
        "aten.linear.default to portable",
        "blocks to portable",
        "large to portable",
        "large.linear to portable",
    } <= names
    assert not any(name.endswith(" to cpu") and "linear" in name for name in names)


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("aten.linear.default to portable", {"blocks.0.linear", "blocks.1.linear", "large.linear"}),
        ("blocks to portable", {"blocks.0", "blocks.0.linear", "blocks.1", "blocks.1.linear"}),
        ("large.linear to portable", {"large.linear"}),
    ],
)
def test_pins_move_these_parts_and_no_others(plan, name, modules):
    """Planned with the pins of a move, exactly its parts are kept from their owner.

    Parts next to them may lose it too: XNNPACK doesn't take each op by itself.
    """
    before, move = owned(plan), moves(plan)[name]
    after = Lowerer(["cpu"], pins=move.pins).plan(*MODEL)
    pinned = [e for e in after["forward"].ledger if e.pin and e.op != "getitem"]
    kept = {(e.module, e.source_op) for e in pinned if before[e.module, e.source_op] != PORTABLE}
    assert {module for module, _ in kept} == modules
    assert all(e.pin.plugin == e.holder == PORTABLE for e in pinned)


def test_an_op_that_only_rearranges_data_is_not_moved_alone(plan):
    assert any("cat" in op for _, op in owned(plan))
    assert not any(name.startswith("aten.cat") for name in moves(plan))


def test_each_move_is_another_one(plan):
    every = [move.pins for move in moves(plan).values()]
    assert len(set(every)) == len(every)
