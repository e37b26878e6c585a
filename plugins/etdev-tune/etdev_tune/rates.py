"""Rates of work of plugins and portable kernels, fitted to profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

from etdev.schema.pins import PORTABLE
from etdev_tune.units import Key, Unit, Work

# Rounds of the fit, which has three unknowns.
_ROUNDS = 200
# Least cost of a call, so that many small delegates are never free.
_LEAST_MS = 1e-4


@frozen
class Sample:
    """The time of one delegate, or of all calls of one portable kernel.

    Args:
        owner: The plugin, or `portable`.
        kernel: Op of a portable kernel.
        calls: Number of calls.
        work: Amount of work.
        ms: Milliseconds.
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
        """Return the time of some work."""
        return calls * self.call + work.products * self.product + work.elements * self.element


@frozen
class Rates:
    """Rates of every owner.

    Args:
        owners: Rates by plugin, and of `portable`.
        kernels: Rates of the portable kernels that were profiled, by op.
    """

    owners: Mapping[str, Rate]
    kernels: Mapping[str, Rate] = field(factory=dict)

    @classmethod
    def fitted(cls, samples: Iterable[Sample]) -> Rates:
        """Fit rates to samples."""
        known = list(samples)
        owners = dict.fromkeys(sample.owner for sample in known)
        kernels = dict.fromkeys(sample.kernel for sample in known if sample.kernel)
        return cls(
            {name: _fit([s for s in known if s.owner == name]) for name in owners},
            {name: _fit([s for s in known if s.kernel == name]) for name in kernels},
        )

    def of(self, unit: Unit, owner: str) -> float | None:
        """Return the time of a unit under an owner; None if the owner has no rate."""
        if owner == PORTABLE:
            rates = (self.kernels.get(base(name)) for name in unit.kernels)
            kernel = next(filter(None, rates), self.owners.get(PORTABLE))
            return kernel.of(unit.work, len(unit.nodes)) if kernel else None
        rate = self.owners.get(owner)
        return rate.of(unit.work) if rate else None

    def call(self, owner: str) -> float:
        """Return the time of a delegate's call beyond its work; 0 for portable kernels."""
        rate = self.owners.get(owner)
        return max(rate.call, _LEAST_MS) if rate and owner != PORTABLE else 0.0


def predicted(units: Sequence[Unit], owners: Mapping[Key, str], rates: Rates) -> float | None:
    """Return the predicted time of units with these owners; None if an owner has no rate.

    A delegate's call is counted where the owner changes from one unit to the next. Times of parts
    don't add up exactly, but well enough to choose what to measure.
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
    """Return the op of a node or kernel without its overload: `aten.add` for `aten::add.out`."""
    return op.partition(".out")[0].replace("::", ".") if "::" in op else op.rpartition(".")[0]


def _fit(samples: Sequence[Sample]) -> Rate:
    """Fit a rate without negative parts, by coordinate descent on relative errors."""
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
