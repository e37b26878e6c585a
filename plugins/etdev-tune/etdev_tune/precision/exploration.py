"""Search for the precision of each layer: float32, uniform schemes, mixed configurations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from attrs import define, evolve, field

from etdev import Pin
from etdev.errors import TuneError, first_line
from etdev.schema.pins import PORTABLE
from etdev_tune.builder import Build
from etdev_tune.candidate import Candidate, baselines
from etdev_tune.exchange import Failure
from etdev_tune.moves import choices_of
from etdev_tune.precision.application import unlifted
from etdev_tune.precision.configurations import Configurations, Saving
from etdev_tune.precision.data import Data
from etdev_tune.precision.layers import Layer, clean, layers_of, placed
from etdev_tune.precision.recipe import FLOAT, PLUGIN, Recipe
from etdev_tune.precision.schemes import Scheme
from etdev_tune.precision.sensitivity import Simulation, predicted, sensitivities
from etdev_tune.record import LATENCY, Record
from etdev_tune.report import Sensitivity
from etdev_tune.search import Attempt, Search

# Share of the budget for sensitivities.
_SENSITIVITIES = 0.15
# The most configurations by the objective, and by each other weight of size and latency.
_BY_OBJECTIVE, _BY_OTHERS = 14, 4
# The weights of the size if the latency is the objective; they add up to 1 with those of the
# latency.
_WEIGHTS = (0.02, 0.98, 0.5)


@define(eq=False, slots=False, kw_only=True)
class Exploration(Search):
    """A search for the recipes of the front; uniform schemes are its baselines.

    Args:
        data: Calls to calibrate on, and others to judge by.
        schemes: The schemes to try.
        found: Sensitivities.
    """

    data: Data
    schemes: Mapping[str, Scheme]
    found: list[Sensitivity] = field(factory=list)
    # The layers that take a scheme, and the scales that it needs.
    _taken: dict[str, list[str]] = field(factory=dict)
    _scales: dict[str, dict[str, tuple[float, int]]] = field(factory=dict)
    _recipes: dict[str, dict[str, str]] = field(factory=dict)
    _order: tuple[str, ...] = ()
    _uniform: Attempt | None = None

    def run(self) -> None:
        """Measure float32, find sensitivities, and measure uniform schemes and mixed ones.

        Raises:
            TuneError: The model has no layer with a choice, or float32 can't be measured.
        """
        if not self.layers:
            what = "the model has no linear layer, convolution or embedding with float32 weights"
            raise TuneError(PLUGIN, what, "tune it without --precision")
        self._float32()
        for scheme in self.schemes.values():
            if self.has_time():
                seconds = _SENSITIVITIES * self.clock.budget_s / len(self.schemes)
                self._simulate(scheme, seconds)
                if scheme.name in self._taken:
                    self._try_uniform(scheme.name)
        self._uniform = self._best
        self._mix()

    def fallback(self) -> Attempt | None:
        """Return the best uniform scheme within the limits."""
        return self._uniform

    def facts(self) -> dict[str, Any]:
        """Return what the report has besides the candidates."""
        calibrated = sum(len(case.calls) for case in self.data.calibration)
        metric, found = self.data.metric, tuple(self.found)
        return {"calibrated": calibrated, "metric": metric, "sensitivities": found}

    @cached_property
    def layers(self) -> dict[str, Layer]:
        """The layers of all methods whose results are used, with the work of all of them."""
        layers: dict[str, Layer] = {}
        for method in self.builder.methods.values():
            for name, layer in layers_of(clean(unlifted(method.program))).items():
                known = layers.get(name)
                layers[name] = evolve(layer, work=layer.work + (known.work if known else 0))
        return layers

    @property
    def _plain(self) -> Record:
        """The record of float32 in the user's claim order."""
        record = self.attempts[0].record
        assert record
        return record

    def _float32(self) -> None:
        """Measure float32 in all claim orders of interest, and take the quickest one."""
        untuned, *others, _ = baselines(self._names)
        first = self._try(evolve(untuned, name=f"{untuned.name}, {FLOAT}"))
        if not first.record or not first.record.latency:
            what = f"float32 can't be measured ({first.fault})"
            raise TuneError(PLUGIN, what, "see etdev lower, which says more")
        for candidate in (*others, *self._rounding()):
            if self.has_time():
                self._try(evolve(candidate, name=f"{candidate.name}, {FLOAT}"))
        best = self._best.candidate.plugins if self._best else ()
        self._order = tuple(dict.fromkeys([*best, *self._names]))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for name in self.builder.setup.plugins if name != PLUGIN)

    def _rounding(self) -> Iterator[Candidate]:
        """Yield plugins that round to bfloat16 by themselves if they are asked to."""
        for name in self._names:
            for option, values in choices_of(self.builder.setup.plugins[name]).items():
                if "bf16" in values and not self._is_fixed(name, option):
                    order = tuple(dict.fromkeys([name, *self._names]))
                    options = {name: {option: "bf16"}}
                    yield Candidate(f"{name} {option}=bf16", order, options, always=True)

    def _is_fixed(self, plugin: str, option: str) -> bool:
        return option in self.builder.setup.registry.entry(plugin).options

    def _simulate(self, scheme: Scheme, seconds: float) -> None:
        """Find the sensitivities of a scheme's layers, and the scales that it needs."""
        self.listener("sensitivity", scheme.name)
        worst: dict[str, Sensitivity] = {}
        scales: dict[str, tuple[float, int]] = {}
        try:
            for case in self.data.calibration:
                program = self.builder.methods[case.method].program
                simulation = Simulation(program, scheme, case)
                scales |= {f"{case.method} {key}": v for key, v in simulation.scales.items()}
                for one in sensitivities(simulation, case, scheme.name, seconds):
                    known = worst.get(one.layer, one)
                    worst[one.layer] = max(one, known, key=lambda own: own.alone)
        # Whatever a quantiser raises is a finding about it.
        except Exception as error:
            self._refuse(scheme.name, first_line(error))
            return
        self.found += (one for one in worst.values() if one.layer in self.layers)
        self._scales[scheme.name] = scales
        if not worst:
            problems = dict.fromkeys(scheme.problem(layer) for layer in self.layers.values())
            self._refuse(scheme.name, ", ".join(filter(None, problems)) or "takes no layer")
        else:
            self._taken[scheme.name] = [name for name in self.layers if name in worst]

    def _refuse(self, name: str, reason: str) -> None:
        self.attempts.append(Attempt(Candidate(name, ()), Failure("refused", reason)))

    def _try_uniform(self, name: str) -> None:
        """Measure a scheme for all layers that take it, and that a backend takes in it."""
        recipe = dict.fromkeys(self._taken[name], name)
        candidate = self._candidate(name, recipe)
        self.listener("build", name)
        lost, why = self._lost(self.builder.build(candidate), recipe)
        recipe = {layer: name for layer in recipe if layer not in lost}
        if not recipe:
            self._refuse(name, f"no plugin takes its layers: {why}")
            return
        foretold = predicted(self._errors, recipe)
        candidate = evolve(self._candidate(name, recipe), always=True)
        attempt = self._try(candidate, predicted_error=foretold)
        attempt.why = f"without {', '.join(lost)}: {why}" if lost else ""

    @property
    def _errors(self) -> dict[tuple[str, str], float]:
        return {(one.layer, one.scheme): one.alone for one in self.found}

    def _lost(self, build: Build | Failure, layers: Mapping[str, str]) -> tuple[list[str], str]:
        """Return the layers that only portable kernels take, if a plugin takes them in float32."""
        if isinstance(build, Failure):
            return [], ""
        before, now = placed(self._plain.build.plan), placed(build.plan)
        lost = [
            layer
            for layer in layers
            if now.get(layer, ("", ""))[0] == PORTABLE != before.get(layer, (PORTABLE, ""))[0]
        ]
        return lost, now[lost[0]][1] if lost else ""

    def _candidate(self, name: str, layers: Mapping[str, str]) -> Candidate:
        """Return the candidate of a recipe, and keep the recipe by its name."""
        self._recipes[name] = dict(layers)
        owners = [self.schemes[scheme].plugin for scheme in layers.values()]
        first = Counter(owner for owner in owners if owner in self._order).most_common(1)
        order = tuple(dict.fromkeys([*(owner for owner, _ in first), *self._order]))
        used = dict.fromkeys(layers.values())
        scales = {k: v for scheme in used for k, v in self._scales[scheme].items()}
        options: dict[str, Mapping[str, Any]] = {PLUGIN: Recipe(layers, scales).to_options()}
        for plugin in order if "bf16" in used else ():
            # A plugin may take bfloat16 layers only if it is asked to.
            flag = choices_of(self.builder.setup.plugins[plugin]).get("bf16")
            if flag == (False, True) and not self._is_fixed(plugin, "bf16"):
                options[plugin] = {"bf16": True}
        # The plugin of a quantiser has its layers, unless it is asked first anyway.
        pins = (
            Pin(owner, module=layer)
            for layer, owner in zip(layers, owners, strict=True)
            if owner not in ("", *order[:1])
        )
        return Candidate(name, (PLUGIN, *order), options, tuple(pins))

    def _mix(self) -> None:
        """Measure mixed configurations by the objective, and by other weights of its costs."""
        named = (a for a in self.attempts if a.candidate.name in self._recipes)
        ran = [attempt for attempt in named if math.isfinite(self._error(attempt))]
        if not ran or len(self.layers) < 2:
            return
        savings = {attempt.candidate.name: self._saving(attempt) for attempt in ran}
        limits = self.comparison.limits
        small = self.comparison.objective != LATENCY or limits.size_bytes is not None
        first, *others = (1 - weight if small else weight for weight in _WEIGHTS)
        configurations = Configurations(self.layers, self._errors, savings, first, limits.error)
        for attempt in ran:
            configurations.learn(self._recipes[attempt.candidate.name], self._error(attempt))
        self._walk(configurations, _BY_OBJECTIVE)
        for weight in others:
            self._walk(evolve(configurations, weight=weight, errors_of_path=[]), _BY_OTHERS)

    def _walk(self, configurations: Configurations, most: int) -> None:
        """Measure the predicted front, and then changes of the best one, while there is time."""
        for _ in range(most):
            chosen = configurations.next()
            if chosen is None and (best := self._best):
                recipe = self._recipes.get(best.candidate.name, {})
                chosen = configurations.change(recipe, self._error(best))
            if chosen is None or not self.has_time():
                break
            self._measure(configurations, chosen)

    def _measure(self, configurations: Configurations, layers: dict[str, str]) -> None:
        """Measure a configuration, and correct the predictions by it."""
        counts = Counter(layers.get(name, FLOAT) for name in self.layers)
        words = ", ".join(f"{scheme} x {count}" for scheme, count in counts.most_common())
        candidate = self._candidate(f"mixed {len(self.attempts)}: {words}", layers)
        plain = self._plain.latency
        latency = plain.value * configurations.latency(layers) if plain else None
        foretold = configurations.error(layers)
        attempt = self._try(candidate, predicted_error=foretold, predicted_ms=latency)
        configurations.learn(layers, self._error(attempt))

    def _error(self, attempt: Attempt) -> float:
        return attempt.record.error if attempt.record else math.inf

    def _saving(self, attempt: Attempt) -> Saving:
        """Return the saving of a uniform scheme over float32."""
        assert attempt.record
        ratio = attempt.record.against(self._plain, LATENCY)
        size = attempt.record.build.size_bytes / max(1, self._plain.build.size_bytes)
        layers = tuple(self._recipes[attempt.candidate.name])
        return Saving(layers, 1 - (ratio.value if ratio else 1.0), 1 - size)
