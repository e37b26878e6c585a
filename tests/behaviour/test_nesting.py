"""Inputs and outputs of any type: the .pte takes and returns them flat."""

from collections import namedtuple
from typing import NamedTuple

import pytest
import torch
from attrs import frozen
from support.toys.runtime import execute
from torch import nn
from torch.utils import _pytree as pytree

from etdev import Lowerer

Pair = namedtuple("Pair", "first second")


class Typed(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@frozen
class Custom:
    first: torch.Tensor
    second: torch.Tensor


pytree.register_pytree_node(
    Custom, lambda pair: ([pair.first, pair.second], None), lambda items, _: Custom(*items)
)


class Returns(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.linear, self.shape = nn.Linear(6, 6), shape

    def forward(self, x):
        return self.shape(self.linear(x))


def agrees(module, *inputs):
    """Whether a .pte of a module computes what it does, at several inputs."""
    lowered = Lowerer(["cpu"]).lower(module.eval(), inputs)
    assert lowered.plan.partitions
    calls = [inputs, *(pytree.tree_map(torch.randn_like, inputs) for _ in range(2))]
    flat = [pytree.tree_leaves(call) for call in calls]
    for computed, call in zip(execute(lowered, *flat), calls, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(computed, pytree.tree_leaves(module(*call)))


@pytest.mark.parametrize(
    "shape",
    [
        lambda y: Pair(y, y * 2),
        lambda y: Typed(y, y * 2),
        lambda y: Custom(y, y * 2),
        lambda y: {"b": Pair(y, [y * 2]), "a": (Custom(y + 1, y + 2), {"c": y - 1})},
        lambda y: torch.topk(y, 2),
        lambda y: torch.max(y, dim=1),
        lambda y: (torch.min(y, dim=0), y),
    ],
)
def test_outputs_of_every_type_come_back_flat(shape):
    agrees(Returns(shape), torch.randn(4, 6))


@pytest.mark.parametrize("kind", [Pair, Typed])
def test_inputs_of_every_type_are_passed_flat(kind):
    class Takes(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, pair):
            return self.linear(pair.first) - pair.second

    agrees(Takes(), kind(torch.randn(4, 6), torch.randn(4, 6)))


def test_a_nesting_that_can_be_written_is_written():
    lowered = Lowerer([]).lower(Returns(lambda y: {"y": y, "z": [y]}), (torch.randn(4, 6),))
    (plan,) = lowered.to_executorch().executorch_program.execution_plan
    assert "builtins.dict" in plan.container_meta_type.encoded_out_str
