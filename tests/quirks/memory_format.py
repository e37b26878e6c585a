"""Faults of the order that tensors have in memory."""

from __future__ import annotations

import torch
from torch import nn
from zoo import random

from quirks import Repro, model, repro

LAST = torch.channels_last


@repro
def strided_inputs() -> Repro:
    x = random(4, 3).t()
    return Repro(model(lambda _, x: x * 2 + 1), [x.contiguous()], example=(x,), expects="error")


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
def non_blocking_copies() -> Repro:
    def copied(_, x):
        return x.to(torch.float64, non_blocking=True)

    return Repro(model(copied), [random(3)], expects="error")
