"""The setup that a user gives, which every candidate keeps: registry, plugins, devices, pins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from etdev.lowerer import Lowerer
from etdev.lowering.composition import compose
from etdev.registry.plugin import Plugin
from etdev.registry.registry import PluginEntry, Registry, load
from etdev.schema.limits import Limits
from etdev.schema.stages import Listener
from etdev_tune.candidate import Candidate


@frozen(eq=False)
class Setup:
    """The user's registry and arguments, which every candidate keeps.

    Args:
        registry: The user's registry, changed by the arguments.
        names: Names of the plugins of the untuned plan, in claim order.
        plugins: These plugins, by name.
        objects: Plugins that were given as objects, which no registry can name.
        cache: Cache of compiled partitions, as for `Lowerer`.
        jobs: Number of processes that compile.
        listener: Called with a stage and a detail.
    """

    registry: Registry
    names: tuple[str, ...]
    plugins: Mapping[str, Plugin]
    objects: Mapping[str, object]
    cache: Any = None
    jobs: int | None = None
    listener: Listener | None = None

    @classmethod
    def of(
        cls,
        plugins: Sequence[object] | None = None,
        *,
        registry: Registry | str | Path | None = None,
        cache: Any = None,
        jobs: int | None = None,
        on_failure: str | None = None,
        listener: Listener | None = None,
        **deciding: Any,
    ) -> Setup:
        """Make a setup of `Lowerer`'s arguments.

        Raises:
            EtdevError: As `Lowerer`.
        """
        table = registry if isinstance(registry, Registry) else load(registry)
        composition = compose(plugins, registry=table, **deciding)
        rules = composition.rules
        entries = tuple(
            evolve(
                table.entry(plugin.name),
                optional=False,
                devices={**table.entry(plugin.name).devices, **rules.devices.get(plugin.name, {})},
                limits=rules.limits.get(plugin.name, Limits()),
            )
            for plugin in composition.delegating
        )
        setup = evolve(
            table,
            entries=entries,
            pins=rules.pins,
            budget=rules.budget,
            strict=rules.strict,
            simplify=composition.simplify,
            on_failure=on_failure or table.on_failure,
        )
        named = {plugin.name: plugin for plugin in composition.delegating}
        given = zip(plugins or (), composition.delegating, strict=False)
        objects = {plugin.name: item for item, plugin in given if not isinstance(item, str)}
        return cls(setup, tuple(named), named, objects, cache, jobs, listener)

    def entry(self, name: str) -> PluginEntry:
        """Return the user's settings of a plugin."""
        return self.registry.entry(name)

    def lowerer(self, candidate: Candidate) -> Lowerer:
        """Return a Lowerer for a candidate."""
        return self.of_registry(candidate.registry(self.registry), candidate.plugins)

    def of_registry(self, registry: Registry, names: Sequence[str]) -> Lowerer:
        """Return a Lowerer for a registry, with the objects that it can only name."""
        return Lowerer(
            [self.objects.get(name, name) for name in names],
            registry=registry,
            cache=self.cache,
            jobs=self.jobs,
            listener=self.listener,
        )
