"""Values that depend on data: lowered in every order of plugins, the caller's program untouched."""

import copy

import pytest
import torch
from support.toys import Takes
from support.toys.runtime import assert_agrees
from torch import nn
from torch.nn import functional

from etdev import Lowerer

X = torch.tensor([[1.0, 0, -2, 3], [0, 2, 0, 5], [1, 1, 7, 0.5]])
ATEN = torch.ops.aten
ORDERS = ([], ["cpu"], ["openvino", "cpu"], ["cpu", "openvino"], ["whole", "cpu"])


def plugins(order):
    """Plugins by name; `whole` keeps ops whole that the others would not, and claims none."""
    ops = (ATEN.silu.default, ATEN.layer_norm.default, ATEN.linear.default, ATEN.arange.default)
    return [Takes("whole", (), whole=ops) if name == "whole" else name for name in order]


class Net(nn.Module):
    """A linear layer and a norm, in what a test makes of them."""

    def __init__(self, body) -> None:
        super().__init__()
        self.body = body
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x, n=None):
        return self.body(self, x) if n is None else self.body(self, x, n)


def item(net, x):
    return functional.silu(net.linear(x)), x.argmax().item()


def number(net, x):
    return net.linear(x) + x[0, 0].item()


def branch(net, x):
    large = x.argmax().item() > 5
    return torch.cond(large, functional.silu, torch.neg, (net.linear(x),))


def rows(net, x, n):
    size = n.item()
    torch._check(size >= 1)
    torch._check(size <= 3)
    return functional.silu(net.norm(net.linear(x[:size])))


def numbers(net, x, n):
    size = n.item()
    torch._check(size >= 1)
    torch._check(size <= 9)
    return torch.arange(size, dtype=torch.float32)[:, None] * functional.silu(net.linear(x)[0])


def window(net, x, n):
    y = net.linear(x)
    start = n.item()
    torch._check(start >= 0)
    torch._check(start < 3)
    # A partition of all but the window would come before what is checked.
    return functional.silu(y + x.narrow(0, start, 1))


CALLS = {
    item: [(X,), (X * 0.5 + 1,)],
    number: [(X,), (X * 0.5 + 1,)],
    branch: [(X,), (X.flip(0),)],
    rows: [(X, torch.tensor(size)) for size in (2, 1, 3)],
    numbers: [(X, torch.tensor(size)) for size in (2, 1, 9)],
    window: [(X, torch.tensor(start)) for start in (1, 0, 2)],
}


def known(program):
    """What torch knows of the symbols of a program."""
    values = (node.meta.get("val") for node in program.graph.nodes)
    env = next(value.fake_mode.shape_env for value in values if hasattr(value, "fake_mode"))
    names = ("var_to_range", "replacements", "guards", "pending_fresh_unbacked_symbols")
    return {name: copy.copy(getattr(env, name)) for name in names}


# One body in all orders in the default run, the others in two.
QUICK = (["openvino", "cpu"], ["whole", "cpu"])
CASES = [(body, ORDERS if body is rows else QUICK) for body in CALLS]
CASES += [pytest.param(b, ORDERS, marks=pytest.mark.suite) for b in CALLS if b is not rows]


def named(given):
    return given.__name__ if callable(given) else f"{len(given)} orders"


@pytest.mark.slice("item", "branch", "numbers")
@pytest.mark.parametrize(("body", "orders"), CASES, ids=named)
def test_one_program_with_data_dependent_values_lowers_in_every_order_of_plugins(body, orders):
    net = Net(body).eval()
    program = torch.export.export(net, CALLS[body][0])
    before = (str(program), known(program))
    for order in orders:
        lowered = Lowerer(plugins(order)).lower(program)
        tolerance = 1e-1 if "openvino" in order else 1e-5
        assert_agrees(lowered, net, *CALLS[body], tolerance=tolerance)
        assert (str(program), known(program)) == before


@pytest.mark.suite
def test_each_place_of_an_op_keeps_its_own_data_dependent_size():
    def selected(net, x):
        y = functional.silu(net.linear(x))
        return y.masked_select(x > 0) * 2, y.masked_select(x > 1) * 3

    whole = (ATEN.masked_select.default, ATEN.silu.default, ATEN.linear.default)
    lowerer = Lowerer([Takes("whole", (), whole=whole), "cpu"])
    net = Net(selected).eval()
    program = torch.export.export(net, (X,))
    for _ in range(2):
        assert_agrees(lowerer.lower(program), net, (X,), (X + 1,), (X - 9,))
