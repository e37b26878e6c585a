"""The result of a branch stays as it is while later branches run."""

import pytest
import torch
from support.toys.runtime import assert_agrees
from torch import nn
from torch._higher_order_ops.scan import scan

from etdev import Lowerer

CALLS = [(torch.tensor(values),) for values in ([1.0, 2.0], [-1.0, 0.5], [3.0, -4.0])]


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("state", torch.ones(2))

    def forward(self, x):
        return self.function(self, x)


def bent(x):
    return torch.cond(
        x.sum() > 0, lambda x: (x + 1) * 2 - x.sin(), lambda x: (x - 1) * 3 + x.cos(), (x,)
    )


def turned(x):
    return torch.cond(x.max() > 1, lambda x: (x * 2).cos() + x, lambda x: x.exp() - x * 4, (x,))


def viewed(_, x):
    first = bent(x).view(2, 1)
    return turned(x), first * 2


def nested(_, x):
    return torch.cond(x[0] > 0, lambda x: bent(x) * turned(x) + x, lambda x: x.sin() * 2, (x,))


def kept(module, x):
    first = bent(x + module.state)
    second = turned(x)
    module.state.copy_(first)
    return second


# With delegates around the branches, and without any.
@pytest.mark.parametrize("plugins", [["cpu"], []], ids=["cpu", "portable"])
@pytest.mark.parametrize("function", [viewed, nested, kept])
def test_a_result_is_not_overwritten_by_a_later_branch(function, plugins):
    module = Function(function)
    assert_agrees(Lowerer(plugins).lower(module, CALLS[0]), module, *CALLS)


def test_a_result_that_is_read_before_the_next_branch_is_not_cloned():
    def chained(_, x):
        return turned(bent(x) * 2)

    program = Lowerer([]).lower(Function(chained), CALLS[0]).edge.exported_program()
    assert not [node for node in program.graph.nodes if "clone" in str(node.target)]


@pytest.mark.parametrize("plugins", [pytest.param([], marks=pytest.mark.suite), ["cpu"]])
def test_a_scan_of_a_layer_may_carry_integers(plugins):
    linear = nn.Linear(2, 2)

    def counted(_, x):
        def step(carried, row):
            hidden = torch.tanh(linear(carried[0]) + row)
            return (hidden, carried[1] + 1), hidden * 2

        (hidden, steps), rows = scan(step, (x, torch.tensor(0)), torch.stack([x, x * 2, -x]))
        return hidden, steps, rows

    module = Function(counted)
    module.linear = linear
    assert_agrees(Lowerer(plugins).lower(module, CALLS[0]), module, *CALLS)
