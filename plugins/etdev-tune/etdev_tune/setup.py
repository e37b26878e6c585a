"""The setup that a user gives, which every candidate keeps: registry, plugins, devices, pins."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from etdev.lowerer import Lowerer
from etdev.lowering.composition import compose
from etdev.planner.rules import Options
from etdev.registry.plugin import Plugin
from etdev.registry.registry import Registry, load
from etdev.schema.limits import Limits
from etdev_tune.candidate import Candidate


@frozen(eq=False)
class Setup:
    """The user's registry and arguments, which every candidate keeps.

    Args:
        registry: The user's registry, changed by the arguments.
        plugins: Plugins of the untuned plan by name, in claim order.
        objects: Plugins that were given as objects, which no registry can name.
        running: Arguments of `Lowerer` that no registry has: `cache`, `jobs`.
    """

    registry: Registry
    plugins: Mapping[str, Plugin]
    objects: Mapping[str, object]
    running: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        plugins: Sequence[object] | None = None,
        *,
        registry: Registry | str | os.PathLike[str] | None = None,
        cache: Any = None,
        jobs: int | None = None,
        on_failure: str | None = None,
        **deciding: Any,
    ) -> Setup:
        """Make a setup of `Lowerer`'s arguments.

        Raises:
            EtdevError: As `Lowerer`.
        """
        if not isinstance(registry, Registry):
            registry = load(Path(registry) if registry else None)
        composition = compose(plugins, Options(registry=registry, **deciding))
        rules = composition.rules
        entries = []
        for plugin in composition.delegating:
            entry = registry.entry(plugin.name)
            devices = {**entry.devices, **rules.devices.get(plugin.name, {})}
            limits = rules.limits.get(plugin.name, Limits())
            entries.append(evolve(entry, optional=False, devices=devices, limits=limits))
        setup = evolve(
            registry,
            entries=tuple(entries),
            pins=rules.pins,
            budget=rules.budget,
            strict=rules.strict,
            simplify=composition.simplify,
            on_failure=on_failure or registry.on_failure,
        )
        named = {plugin.name: plugin for plugin in composition.delegating}
        given = zip(plugins or (), named, strict=False)
        objects = {name: item for item, name in given if not isinstance(item, str)}
        return cls(setup, named, objects, {"cache": cache, "jobs": jobs})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the plugins of the untuned plan, in claim order."""
        return tuple(self.plugins)

    def lowerer(self, candidate: Candidate, registry: Registry | None = None) -> Lowerer:
        """Return a Lowerer for a candidate.

        Args:
            candidate: The candidate.
            registry: Its registry as read from a file; None to make it.
        """
        plugins = [self.objects.get(name, name) for name in candidate.plugins]
        known = registry or candidate.registry(self.registry)
        return Lowerer(plugins, registry=known, **self.running)
