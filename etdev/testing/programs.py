"""Tiny programs: the smallest models that can show a broken part of the contract."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import is_tensor, nn
from torch.export import Dim, ExportedProgram

from etdev.upstream.trees import pytree

# The arguments of each call of a model.
Calls = Sequence[Sequence[Any]]
X, Y = torch.linspace(-2, 2, 8).reshape(2, 4), torch.linspace(1, 3, 8).reshape(2, 4)
# Exported programs by their model, or by its kind and whether its inputs are dynamic.
_programs: dict[Any, ExportedProgram] = {}


class Pointwise(nn.Module):
    """A sum, a product and a sum: two additions with a node between."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y) * y + x


class Layer(nn.Module):
    """A linear layer and an activation, with weights."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        nn.init.constant_(self.linear.weight, 0.25)
        nn.init.constant_(self.linear.bias, -0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + 1


class Shared(nn.Module):
    """A weight that is read twice, with an op between the reads that few backends have."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.erf(x + self.weight) * self.weight


class Scaled(nn.Module):
    """A weight that only a product reads, and a sum without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + x) * self.weight + x


class Counter(nn.Module):
    """A buffer that is written at every step, and whose old and new values are read."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        old = self.total + 0
        self.total.add_(x.sum(0))
        return old + self.total * 2


class Branch(nn.Module):
    """Control flow with branches of one node."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x * 2,))
        return y + x


# The program that the current check used last, for its message.
used: list[ExportedProgram] = []


def noted(program: ExportedProgram) -> ExportedProgram:
    """Note a program as the one that the current check uses."""
    used[:] = [program]
    return program


def forget() -> None:
    """Forget the programs, so that they are made again."""
    _programs.clear()


def exported(kind: Any, dynamic: bool = False) -> ExportedProgram:
    """Return the ATen program of one of these modules; dynamic inputs have 1 to 8 rows."""
    inputs = (X, Y) if kind is Pointwise else (X,)
    sizes = [tuple(value.new_ones(rows, 4) for value in inputs) for rows in (1, 8)]
    return _once((kind, dynamic), kind(), [inputs, *sizes] if dynamic else [inputs])


def exported_own(model: nn.Module, calls: Calls) -> ExportedProgram:
    """Return the ATen program of an author's model, which is exported once."""
    return _once(model, model, calls)


def _once(key: Any, model: nn.Module, calls: Calls) -> ExportedProgram:
    if key not in _programs:
        _programs[key] = export(model, calls)
    return noted(_programs[key])


def export(model: nn.Module, calls: Calls) -> ExportedProgram:
    """Export a copy of a model; sizes that differ between the calls are dynamic."""
    given = [tuple(call) for call in calls]
    # The largest, since torch.export takes sizes of 0 and 1 for constants.
    example = max(given, key=lambda call: sum(map(torch.numel, filter(is_tensor, call))))
    shapes = pytree.tree_map(_dynamic, *given)
    used = shapes if any(pytree.tree_leaves(shapes)) else None
    with torch.no_grad():
        return torch.export.export(copy.deepcopy(model).eval(), example, dynamic_shapes=used)


def _dynamic(*values: Any) -> Any:
    """Return the dynamic sizes of an input, given its values in several calls."""
    if not is_tensor(values[0]):
        return None
    sizes = enumerate(map(set, zip(*(value.shape for value in values), strict=True)))
    return {dim: Dim.AUTO(min=min(few), max=max(few)) for dim, few in sizes if len(few) > 1}


# The smallest first, so that the first failure is the simplest.
PROGRAMS: tuple[Any, ...] = (Pointwise, Layer, Scaled, Shared, Counter, Branch)
