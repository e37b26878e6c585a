"""Faults of numbers beside tensors, and of dtypes that torch promotes."""

from __future__ import annotations

import torch

from support.quirks import Repro, model, repro
from support.zoo import random

X = random(3, 4)


@repro
def mixed_dtypes() -> Repro:
    return Repro(model(lambda _, x, y: torch.cat([x, y], 1)), [(X.half(), X)], expects="error")


@repro
def refused_complex() -> Repro:
    return Repro(model(lambda _, x: torch.fft.rfft(x).abs()), [X], expects="error")


@repro
def refused_complex_halves() -> Repro:
    return Repro(model(lambda _, x: torch.view_as_real(x.chalf())), [X.half()], expects="error")


@repro
def mixed_halves() -> Repro:
    def chosen(_, x, half, other):
        return torch.where(x > 0, half, other)

    return Repro(model(chosen), [(X, X.half(), X.bfloat16())], expects="error")


@repro
def compared_halves() -> Repro:
    calls = [(torch.tensor(number, dtype=torch.int32), X.half() * 2048) for number in (2049, 70000)]
    return Repro(model(lambda _, x, y: (x < y, x == y, x >= y * 32)), calls)


@repro
def rounded_scalars() -> Repro:
    return Repro(model(lambda _, x: x * 0.1), [X.double()], tolerance=1e-12)


@repro
def widened_scalars() -> Repro:
    return Repro(model(lambda _, x: x + 1), [torch.tensor(5, dtype=torch.int8)])


@repro
def norms_with_wide_weights() -> Repro:
    norm = torch.nn.BatchNorm1d(4)
    return Repro(model(lambda net, x: net.norm(x), norm=norm), [X.half()], expects="error")
