"""Faults of dynamic sizes, and of sizes that depend on data."""

from __future__ import annotations

import torch
from torch.export import Dim

from support.quirks import Repro, model, repro
from support.zoo import random

X = random(3, 4)
ROWS = (({0: Dim("rows", max=8)},),)


@repro
def fixed_sizes() -> Repro:
    calls = [random(rows, 4) for rows in (3, 8, 1)]
    return Repro(
        model(lambda _, x: x.split([1, 3], 1)), calls, dynamic_shapes=ROWS, expects="error"
    )


@repro
def unbounded_sizes() -> Repro:
    calls = [random(rows, 4) for rows in (3, 8)]
    shapes = (({0: Dim("rows")},),)
    return Repro(model(lambda _, x: x.sin() + 1), calls, dynamic_shapes=shapes, expects="error")


@repro
def narrowed_ranges() -> Repro:
    tripled = model(lambda _, x: x * 3)
    return Repro(tripled, [X, X[:1]], dynamic_shapes=ROWS, ranges=True, expects="error")


@repro
def unknown_positions() -> Repro:
    calls = [(X, torch.tensor(row)) for row in (1, 0, -1, 5)]
    return Repro(model(lambda _, x, i: x[i]), calls, expects="error")


@repro
def narrow_selections() -> Repro:
    selected = model(lambda _, x, mask: x.masked_select(mask) + 1)
    return Repro(selected, [(X, random(2, 3, 4) > -9), (X, random(2, 3, 4) > 0)], expects="error")


@repro
def powers_of_sizes() -> Repro:
    square = model(lambda _, x: x * x.shape[0] ** 2)
    return Repro(square, [random(rows, 4) for rows in (3, 8)], dynamic_shapes=ROWS, expects="error")


@repro
def floats_of_sizes() -> Repro:
    middle = model(lambda _, x: x.quantile(0.3, dim=0))
    return Repro(middle, [random(rows, 4) for rows in (3, 8)], dynamic_shapes=ROWS, expects="error")


@repro
def dynamic_lists() -> Repro:
    def pieces(_: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
        return [*x.split((1, 3), 1), *x.chunk(2, -1), *x.unbind(1)]

    calls = [random(rows, 4) for rows in (3, 8, 1)]
    return Repro(model(pieces), calls, dynamic_shapes=ROWS, expects="error")


@repro
def dynamic_empties() -> Repro:
    made = model(lambda _, x: x.new_empty(x.shape[0], 4).fill_(2.0) + x)
    return Repro(made, [random(rows, 4) for rows in (3, 8)], dynamic_shapes=ROWS, expects="error")


@repro
def possibly_empty() -> Repro:
    places = model(lambda _, x: x.nonzero().T.contiguous() * 2)
    return Repro(places, [X, X.relu(), X * 0], expects="error")


@repro
def assertions_on_data() -> Repro:
    def checked(_: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        torch._check_tensor_all(x.abs() < 9)
        return x.sin()

    return Repro(model(checked), [X, X + 1], expects="error")


@repro
def signed_remainders() -> Repro:
    calls = [random(rows, 4) for rows in (2, 7, 4)]
    shapes = (({0: Dim("rows", min=1, max=7)},),)
    return Repro(model(lambda _, x: x * ((3 - x.shape[0]) % 4)), calls, dynamic_shapes=shapes)
