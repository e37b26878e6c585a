"""Mixed-precision configurations, predicted from sensitivities and uniform schemes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property

from attrs import define, field, frozen

from etdev_tune.precision.layers import Layer
from etdev_tune.precision.sensitivity import predicted

# Multipliers of squared errors that are tried, as powers of ten: from the most exact to the
# cheapest configuration.
_STEPS, _FROM, _TO = 160, 12.0, -8.0
# Configurations are measured whose errors differ by this factor at least.
_STEP = 1.2
# Changes may be predicted to exceed the limit by this factor, since predictions are rough.
_HOPE = 1.1


@frozen
class Saving:
    """The saving of a scheme over float32, measured where all layers have it.

    Args:
        layers: The layers that have it.
        latency: Share of float32's latency.
        size: Share of float32's size.
    """

    layers: tuple[str, ...]
    latency: float
    size: float


@define(eq=False)
class Configurations:
    """The schemes that layers may have, with predicted errors and costs.

    Args:
        layers: The model's layers.
        errors: Error by layer and scheme, if no other layer is quantised.
        savings: Savings by scheme.
        weight: The weight of the size in costs; the rest is the latency's.
        limit: Largest error that is allowed; None for any.
        factor: Measured errors as a multiple of predicted ones, so far.
        tried: The configurations that were measured.
        errors_of_path: Measured errors, but for those of configurations with another weight.
    """

    layers: Mapping[str, Layer]
    errors: Mapping[tuple[str, str], float]
    savings: Mapping[str, Saving]
    weight: float = 0.02
    limit: float | None = None
    factor: float = 1.0
    tried: list[Mapping[str, str]] = field(factory=list)
    errors_of_path: list[float] = field(factory=list)

    def error(self, layers: Mapping[str, str]) -> float:
        """Return the predicted error of a configuration."""
        return self.factor * predicted(self.errors, layers)

    def latency(self, layers: Mapping[str, str]) -> float:
        """Return the predicted latency as a multiple of float32's."""
        return 1 - sum(self._saved(*item)[0] for item in layers.items())

    def cost(self, layers: Mapping[str, str]) -> float:
        """Return the predicted change of the weighted cost, as a share of float32's."""
        return sum(self._cost(*item) for item in layers.items())

    def learn(self, layers: Mapping[str, str], measured: float) -> None:
        """Correct the factor of errors by the measured error of a configuration."""
        self.tried.append(layers)
        self.errors_of_path.append(measured)
        foretold = predicted(self.errors, layers)
        if foretold > 0 and 0 < measured < math.inf:
            ratio = measured / foretold
            self.factor = ratio if self.factor == 1.0 else math.sqrt(self.factor * ratio)

    def next(self) -> dict[str, str] | None:
        """Return the configuration to measure next; None if the path has been measured closely.

        The first one is predicted to be the cheapest within the limit; each further one has the
        predicted error that is the farthest from all measured ones.
        """
        untried = [layers for layers in self.path if self._is_untried(layers)]
        inside = [own for own in self.path if self.limit and self.error(own) <= self.limit]
        best = min(inside, key=self.cost, default=None)
        if best in untried:
            return best
        near = [math.log(error) for error in self.errors_of_path if 0 < error < math.inf]

        def distance(layers: dict[str, str]) -> float:
            own = math.log(max(self.error(layers), 1e-12))
            return min((abs(own - other) for other in near), default=math.inf)

        far = max(untried, key=distance, default=None)
        return far if far is not None and distance(far) >= math.log(_STEP) else None

    def change(self, layers: Mapping[str, str], error: float) -> dict[str, str] | None:
        """Return the cheapest untried change of one layer that is predicted to be within the limit.

        Args:
            layers: A measured configuration.
            error: Its error.
        """
        allowed = math.inf if self.limit is None else _HOPE * self.limit
        before = self.error(layers)
        for other in self.changes(layers):
            squared = error**2 + self.error(other) ** 2 - before**2
            if other and self._is_untried(other) and math.sqrt(max(0.0, squared)) <= allowed:
                return other
        return None

    @cached_property
    def path(self) -> list[dict[str, str]]:
        """The predicted front, from the most exact to the cheapest configuration."""
        found: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        for step in range(_STEPS + 1):
            chosen = self._best(10 ** (_FROM + (_TO - _FROM) * step / _STEPS))
            found.setdefault(tuple(chosen.items()), chosen)
        return sorted(filter(None, found.values()), key=self.error)

    def changes(self, layers: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """Yield cheaper configurations that differ in one layer, the cheapest first."""
        changed = [
            {own: scheme for own, scheme in every if scheme}
            for name in self.layers
            for other in ("", *self._schemes(name))
            if (every := [(k, other if k == name else layers.get(k, "")) for k in self.layers])
        ]
        cheaper = [other for other in changed if self.cost(other) < self.cost(layers)]
        yield from sorted(cheaper, key=self.cost)

    def _best(self, multiplier: float) -> dict[str, str]:
        """Return the configuration of the least cost plus that multiple of the squared error."""
        chosen = {}
        for name in self.layers:
            costs = {
                scheme: self._cost(name, scheme) + multiplier * self.errors[name, scheme] ** 2
                for scheme in self._schemes(name)
            }
            best = min(costs, key=costs.__getitem__, default="")
            if best and costs[best] < 0:
                chosen[name] = best
        return chosen

    def _is_untried(self, layers: Mapping[str, str]) -> bool:
        return layers not in self.tried

    def _schemes(self, name: str) -> list[str]:
        return [scheme for scheme, saving in self.savings.items() if name in saving.layers]

    def _cost(self, name: str, scheme: str) -> float:
        latency, size = self._saved(name, scheme)
        return -self.weight * size - (1 - self.weight) * latency

    def _saved(self, name: str, scheme: str) -> tuple[float, float]:
        """Return what a layer saves: its share of the work, or of weights that it converts."""
        saving = self.savings[scheme]
        own = [self.layers[other] for other in saving.layers]
        work = self.layers[name].work / (sum(layer.work for layer in own) or 1)
        elements = self.layers[name].elements / sum(layer.elements for layer in own)
        return saving.latency * (work if saving.latency > 0 else elements), saving.size * elements
