"""Rates: what plugins and portable kernels take for their work, fitted to profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

from etdev.schema.pins import PORTABLE
from etdev_tune.units import Key, Unit, Work

# Rounds of the fit; it has three unknowns.
_ROUNDS = 200
# What a call costs at least, so that many small delegates are never free.
_LEAST_MS = 1e-4


@frozen
class Sample:
    """The time of one delegate, or of all calls of one portable kernel.

    Args:
        owner: The plugin, or `portable`.
        kernel: The op, for a portable kernel.
        calls: How often it is called.
        work: What it computes.
        ms: The time.
    """

    owner: str
    kernel: str
    calls: int
    work: Work
    ms: float


@frozen
class Rate:
    """Milliseconds per call, per multiplication and per element."""

    call: float
    product: float
    element: float

    def of(self, work: Work, calls: float = 0.0) -> float:
        """The time of some work."""
        return calls * self.call + work.products * self.product + work.elements * self.element


@frozen
class Rates:
    """Rates of every owner.

    Args:
        owners: By plugin, and `portable`.
        kernels: Those of portable kernels that were seen, by op.
    """

    owners: Mapping[str, Rate]
    kernels: Mapping[str, Rate] = field(factory=dict)

    @classmethod
    def fitted(cls, samples: Iterable[Sample]) -> Rates:
        """The rates that samples agree with best."""
        known = list(samples)
        owners = dict.fromkeys(sample.owner for sample in known)
        kernels = dict.fromkeys(sample.kernel for sample in known if sample.kernel)
        return cls(
            {name: _fit([s for s in known if s.owner == name]) for name in owners},
            {name: _fit([s for s in known if s.kernel == name]) for name in kernels},
        )

    def of(self, unit: Unit, owner: str) -> float | None:
        """What a unit takes in the hands of an owner; None if nothing is known of it."""
        if owner == PORTABLE:
            rates = (self.kernels.get(base(name)) for name in unit.kernels)
            kernel = next(filter(None, rates), self.owners.get(PORTABLE))
            return kernel.of(unit.work, len(unit.nodes)) if kernel else None
        rate = self.owners.get(owner)
        return rate.of(unit.work) if rate else None

    def call(self, owner: str) -> float:
        """What a call of a delegate takes beyond its work; portable kernels have that in theirs."""
        rate = self.owners.get(owner)
        return max(rate.call, _LEAST_MS) if rate and owner != PORTABLE else 0.0


def predicted(units: Sequence[Unit], owners: Mapping[Key, str], rates: Rates) -> float | None:
    """What a method takes with these owners, by the rates; None if they don't know one of them.

    Units count in their order; a delegate is called where the owner changes. That is additive and
    therefore wrong, and good enough to choose what to measure.
    """
    total, before = 0.0, PORTABLE
    for unit in units:
        owner = owners.get(unit.key, unit.owner)
        own = rates.of(unit, owner)
        if own is None:
            return None
        total += own + (rates.call(owner) if owner != before else 0.0)
        before = owner
    return total


def base(op: str) -> str:
    """The op of a node or kernel without overload: `aten.add` of `aten::add.out`."""
    return op.partition(".out")[0].replace("::", ".") if "::" in op else op.rpartition(".")[0]


def _fit(samples: Sequence[Sample]) -> Rate:
    """A rate without negative parts, by coordinate descent on relative errors."""
    rows: Any = np.array([[s.calls, s.work.products, s.work.elements] for s in samples], float)
    times: Any = np.array([max(s.ms, 1e-6) for s in samples], float)
    rows = rows / times[:, None]
    scale = np.maximum(rows.max(axis=0), 1e-30)
    columns, rate = rows / scale, np.zeros(3)
    for _ in range(_ROUNDS):
        for index in range(3):
            column = columns[:, index]
            rest = 1.0 - columns @ rate + column * rate[index]
            weight = float(column @ column)
            rate[index] = max(0.0, float(column @ rest) / weight) if weight else 0.0
    return Rate(*(float(value) for value in rate / scale))
