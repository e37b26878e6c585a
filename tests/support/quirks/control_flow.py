"""Faults of conditions, maps, scans and loops."""

from __future__ import annotations

import torch
from torch import cond, nn
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan, while_loop
from torch.export import Dim

from support.quirks import Repro, model, repro

CALLS = [torch.tensor(values) for values in ([1.0, 2.0], [-1.0, 0.5], [3.0, -4.0])]
ROWS = [torch.tensor([[0.5, -1.0], [2.0, 3.0]]), torch.tensor([[-2.0, 1.0], [0.0, 4.0]])]


def bent(x):
    """A condition with several values in its branches."""
    return cond(x.sum() > 0, lambda x: (x + 1) * 2 - x.sin(), lambda x: (x - 1) * 3 + x.cos(), (x,))


def turned(x):
    """Another one."""
    return cond(x.max() > 1, lambda x: (x * 2).cos() + x, lambda x: x.exp() - x * 4, (x,))


@repro
def branch_constants() -> Repro:
    def literals(_, x):
        return cond(x.sum() > 0, lambda x: x + torch.tensor([1.0, 2.0]), lambda x: x * 2, (x,))

    return Repro(model(literals), CALLS, expects="error")


@repro
def overwritten_results() -> Repro:
    return Repro(model(lambda _, x: (bent(x), turned(x))), CALLS)


@repro
def viewed_results() -> Repro:
    return Repro(model(lambda _, x: bent(x).view(2, 1) * 2), CALLS)


@repro
def misplaced_views() -> Repro:
    def carried(_, x):
        return scan(lambda c, row: (c + row, c.view(2, 1) * 2), torch.ones(2), x, dim=0)

    return Repro(model(carried), ROWS)


@repro
def unsupported_flows() -> Repro:
    def loop(_, x):
        def body(step, value):
            return step + 1, value * 2

        return while_loop(lambda step, value: step < 3, body, (torch.tensor(0), x))

    return Repro(model(loop), CALLS, expects="error")


@repro
def maps_over_several_tensors() -> Repro:
    products = model(lambda _, x, y: mapped(lambda pair: pair[0] * pair[1], (x, y)))
    return Repro(products, [(ROWS[0], ROWS[1])], expects="error")


@repro
def resized_rows() -> Repro:
    def decayed(_, x):
        return scan(lambda c, row: (c * 0.5 + row, c + row), torch.zeros(x.shape[1]), x, dim=0)

    shapes = (({1: Dim("batch", max=4)},),)
    calls = [torch.ones(3, batch) for batch in (2, 4, 1)]
    return Repro(model(decayed), calls, dynamic_shapes=shapes, expects="error")


@repro
def scan_gradients() -> Repro:
    def counted(net, x):
        def step(carried, row):
            hidden = torch.tanh(net.layer(carried[0]) + row)
            return (hidden, carried[1] + 1), hidden * 2

        (hidden, steps), rows = scan(step, (x, torch.tensor(0)), torch.stack([x, x * 2, -x]))
        return hidden, steps, rows

    module = model(counted, layer=nn.Linear(2, 2))
    return Repro(module, CALLS, gradients=True, expects="error")


@repro
def wanted_ops_in_branches() -> Repro:
    def branched(net, x):
        return cond(x.sum() > 0, lambda x: net.layer(x), lambda x: x * 2, (x,))

    module = model(branched, layer=nn.Linear(2, 2))
    return Repro(module, [ROWS[0], -ROWS[0]], backend="xnnpack", expects="error")
