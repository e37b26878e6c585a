"""Faults of buffers and parameters that a method writes."""

from __future__ import annotations

import torch
from torch import nn

from support.quirks import Repro, model, repro
from support.zoo import random

X = random(4)
CALLS = [X, X + 1, X * 2, -X]


def zeros(*names: str) -> dict[str, torch.Tensor]:
    """Buffers of four zeros."""
    return {name: torch.zeros(4) for name in names}


@repro
def aliased_buffers() -> Repro:
    def step(net, x):
        net.one.add_(x)
        return x * net.other

    tensor = torch.ones(4)
    return Repro(model(step, one=tensor, other=tensor), CALLS, expects="error")


@repro
def overlapping_buffers() -> Repro:
    def step(net, x):
        net.one.add_(1)
        return net.other.sum() + x

    tensor = torch.ones(8)
    return Repro(model(step, one=tensor[:5], other=tensor[3:]), CALLS, expects="error")


@repro
def reused_sources() -> Repro:
    def earlier(net, x):
        net.one.add_(x)
        before = net.two + 0
        net.two.copy_(net.one)
        return before, net.two

    return Repro(model(earlier, **zeros("one", "two")), CALLS, expects="error")


@repro
def converting_copies() -> Repro:
    def convert(net, x):
        net.count.copy_(x * 3)
        net.rows.copy_(x)
        return net.count + 1, net.rows.sum(0)

    buffers = {"count": torch.zeros(4, dtype=torch.int32), "rows": torch.zeros(3, 4)}
    return Repro(model(convert, **buffers), CALLS)


@repro
def idle_dropouts() -> Repro:
    def written(_, x):
        y = x * 2
        nn.functional.dropout(y, training=False).add_(1)
        return y

    return Repro(model(written), CALLS)


@repro
def returned_arguments() -> Repro:
    def written(_, x):
        y = x * 2
        torch.einsum("ij->ji", y).add_(1)
        return y

    return Repro(model(written), [random(3, 4)])


@repro
def written_inputs() -> Repro:
    def add(_, x):
        x.add_(1)
        return x * 2

    return Repro(model(add), CALLS)


@repro
def lost_write_back() -> Repro:
    def remember(net, x):
        before = net.older * 10 + net.newer
        net.older.copy_(net.newer)
        net.newer.add_(x)
        return before

    return Repro(model(remember, **zeros("older", "newer")), CALLS)


@repro
def shared_new_value() -> Repro:
    def fill_both(net, x):
        both = net.older + net.newer + x
        net.older.copy_(both)
        net.newer.copy_(both)
        return both * 2

    return Repro(model(fill_both, **zeros("older", "newer")), CALLS, expects="error")


@repro
def stale_outputs() -> Repro:
    def was(net, x):
        before = net.older.to(torch.float32, copy=True)
        net.older.add_(x)
        return before

    return Repro(model(was, **zeros("older")), CALLS)


@repro
def viewed_updates() -> Repro:
    def remember(net, x):
        before = net.older.sum() + net.newer
        net.older.copy_(net.newer.view(2, 2))
        net.newer.add_(x)
        return before

    return Repro(model(remember, newer=torch.zeros(4), older=torch.zeros(2, 2)), CALLS)


@repro
def written_parameters() -> Repro:
    class Decaying(nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            self.weight.mul_(0.5)
            return out

    return Repro(Decaying(4, 3), [random(2, 4)] * 3)


@repro
def initial_values() -> Repro:
    def count(net, x):
        net.count.add_(2)
        return net.count * x

    return Repro(model(count, count=torch.full((4,), 5.0)), CALLS)


@repro
def gradient_buffers() -> Repro:
    def count(net, x):
        out = net.count * x
        net.count.copy_(x)
        return out

    buffer = torch.ones(4, requires_grad=True)
    return Repro(model(count, count=buffer), CALLS, gradients=True, expects="error")


@repro
def batch_norm_gradients() -> Repro:
    norm = nn.BatchNorm2d(4).train()
    calls = [random(2, 4, 3, 3, seed=seed) for seed in range(3)]
    return Repro(norm, calls, gradients=True, expects="error")


def methods(added: torch.Tensor, read: torch.Tensor) -> dict[str, nn.Module]:
    """Two methods, of which one adds to a buffer, and one reads a buffer."""

    def add(net, x):
        net.total.add_(x[: len(net.total)])
        return net.total + 1

    def times(net, x):
        return net.total * x

    return {"add": model(add, total=added), "read": model(times, total=read)}


@repro
def shared_state() -> Repro:
    total = torch.ones(4)
    return Repro(methods(total, total), [("read", X), ("add", X), ("read", X), ("add", X)])


@repro
def overlapping_state() -> Repro:
    total = torch.zeros(4)
    return Repro(methods(total[:2], total), [("read", X), ("add", X), ("read", X), ("add", X)])


@repro
def empty_weights() -> Repro:
    # A constant with elements beside it would have it loaded.
    joined = model(lambda net, x: torch.cat([net.none, x]), none=torch.zeros(0, 3))
    return Repro(joined, [random(2, 3)], expects="error")
