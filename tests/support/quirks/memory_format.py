"""Faults of the order that tensors have in memory."""

from __future__ import annotations

import torch
from torch import nn

from support.quirks import Repro, model, repro
from support.zoo import random

LAST = torch.channels_last


@repro
def strided_inputs() -> Repro:
    x = random(4, 3).t()
    return Repro(model(lambda _, x: x * 2 + 1), [x.contiguous()], example=(x,), expects="error")


@repro
def strided_views() -> Repro:
    def read(_, x):
        y = x * 2
        slices = y[1:].as_strided((2, 2), (2, 1), 0), y[:, 1:3].as_strided((2, 2), (4, 1))
        return y.t().as_strided((2, 6), (6, 1)) + 1, *slices, y.t().resize_(2, 6), x.t() + 1

    return Repro(model(read), [random(3, 4), random(3, 4, seed=1)])


@repro
def viewed_attention() -> Repro:
    def attend(net, x):
        heads = x.view(*x.shape[:2], 4, 4).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        # As GPT-2's Conv1D does.
        rows = mixed.transpose(1, 2).reshape(x.shape).view(-1, 16)
        return torch.addmm(net.layer.bias, rows, net.layer.weight)

    net = model(attend, layer=nn.Linear(16, 16))
    return Repro(net, [random(2, 3, 16), random(2, 3, 16, seed=1)], expects="error")


@repro
def channels_last_weights() -> Repro:
    module = nn.Conv2d(4, 6, 3).to(memory_format=LAST)
    return Repro(module, [random(2, 4, 8, 8)], expects="error")


@repro
def unknown_orders() -> Repro:
    return Repro(
        model(lambda _, x: x.nonzero() * 2), [random(3, 4).relu(), random(3, 4)], expects="error"
    )


@repro
def unknown_copies() -> Repro:
    first = model(lambda _, x: x.nonzero().float())
    return Repro(first, [random(3, 4).relu(), random(3, 4)], expects="error")


@repro
def non_blocking_copies() -> Repro:
    def copied(_, x):
        return x.to(torch.float64, non_blocking=True)

    return Repro(model(copied), [random(3)], expects="error")


@repro
def ordered_volumes() -> Repro:
    def stored(net, x):
        last = x.to(memory_format=torch.channels_last_3d)
        return torch.relu(net.conv(last)), last.clone() * 2

    return Repro(model(stored, conv=nn.Conv3d(2, 3, 2)), [random(1, 2, 3, 4, 5)], expects="error")


@repro
def unwritten_orders() -> Repro:
    first = model(lambda _, x: x[:, :1].clone(memory_format=LAST))
    return Repro(first, [random(2, 3, 4, 4)], expects="error")


@repro
def channels_last_kernels() -> Repro:
    x = random(1, 2, 3, 4).to(memory_format=LAST)
    return Repro(model(lambda _, x: torch.softmax(x, 1)), [x], expects="error")


@repro
def channels_last_buffers() -> Repro:
    def keep(net, x):
        before = net.state.sum(1)
        net.state.copy_(x * 2)
        return before

    state = torch.zeros(1, 2, 3, 4).to(memory_format=LAST)
    return Repro(model(keep, state=state), [random(1, 2, 3, 4)] * 2, expects="error")
