"""The settings of a user, for lowerings that vary plugins, their options and pins."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, frozen

from etdev.errors import EtdevError, close_to
from etdev.locking import lock_of
from etdev.lowered import Lowered
from etdev.lowerer import Lowerer
from etdev.lowering.composition import compose
from etdev.registry.plugin import Plugin
from etdev.registry.registry import PluginEntry, Registry, registry_of
from etdev.schema.options import Surface, settings_on

# Values that a table of a registry file has as they are; others have tables of their own.
_PLAIN = (bool, int, float, str)


@frozen(eq=False)
class Setup:
    """The registry of a user, changed by the arguments of a `Lowerer`, for lowerings that vary it.

    Args:
        registry: The registry, with an entry for each plugin that can compile here, in claim order.
        plugins: These plugins by name.
        objects: Plugins that were given as objects, which no registry can name.
        running: Arguments of `Lowerer` that change no .pte: `cache`, `executor`, `jobs`.

    Example:
        setup = Setup.of(["cpu"], strict=True)
        lowered = setup.lowerer(attrs.evolve(setup.registry, simplify=False)).lower(net, (x,))
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
        registry: Registry | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> Setup:
        """Make a setup of `Lowerer`'s arguments, with the plugins that can compile here.

        Args:
            plugins: As for `Lowerer`.
            registry: As for `Lowerer`.
            **settings: The other arguments of `Lowerer`.

        Raises:
            EtdevError: As `Lowerer` does, and if a plugin that is named can't compile here.
        """
        arguments = [own.name for own in settings_on(Surface.ARGUMENT)]
        for name in settings:
            if name not in arguments:
                cure = close_to(name, arguments) or f"these are {', '.join(arguments)}"
                raise EtdevError(name, "is not an argument of Lowerer", cure)
        table = registry_of(registry)
        composition = compose(plugins, table, settings).fit(tolerant=False)
        options, entries = composition.options, []
        for plugin in composition.delegating:
            entry, devices = table.entry(plugin.name), options.devices.get(plugin.name, {})
            entries.append(evolve(entry, optional=False, devices=devices, limits=plugin.limits))
        known = [own.name for own in settings_on(Surface.REGISTRY)]
        chosen = {name: getattr(options, name) for name in known}
        setup = Registry(tuple(entries), path=table.path, **chosen)
        named = {plugin.name: plugin for plugin in composition.delegating}
        given = zip(plugins or (), named, strict=False)
        objects = {name: item for item, name in given if not isinstance(item, str)}
        changing = settings_on(Surface.LOCK)
        running = [own.name for own in settings_on(Surface.ARGUMENT) if own not in changing]
        return cls(setup, named, objects, {name: getattr(options, name) for name in running})

    def lowerer(self, registry: Registry | Path) -> Lowerer:
        """Return a Lowerer with the plugins that a registry or a registry file lists.

        Raises:
            EtdevError: As `Lowerer` does.
        """
        known = registry_of(registry)
        plugins = [self.objects.get(name, name) for name in known.names]
        return Lowerer(plugins, registry=known, **self.running)

    @staticmethod
    def lock(lowerer: Lowerer, lowered: Lowered, path: Path) -> str:
        """Return the text of the lock file of a .pte that a lowering was saved to."""
        return lock_of(lowerer.compilation, lowered, path).to_json()

    @staticmethod
    def tables(registry: Registry) -> dict[str, Any]:
        """Return a registry without its cache as the tables of its file, for a writer of TOML."""
        values = {own.name: getattr(registry, own.name) for own in settings_on(Surface.REGISTRY)}
        document = {
            **{name: value for name, value in values.items() if isinstance(value, _PLAIN)},
            "trusted": registry.trusted,
            "pin": [asdict(pin) for pin in registry.pins] or None,
            "budget": asdict(registry.budget) if registry.budget else None,
            "plugins": {entry.name: _table(entry) for entry in registry.entries},
        }
        known: dict[str, Any] = _known(document)
        return known


def _table(entry: PluginEntry) -> dict[str, Any]:
    """Return the table of a plugin, with None for what it doesn't have."""
    return {
        "optional": entry.optional or None,
        "partitioner": entry.partitioner or None,
        **asdict(entry.limits),
        "device": {key: str(device) for key, device in entry.devices.items()} or None,
        "options": entry.options or None,
    }


def _known(value: Any) -> Any:
    """Return a value without the entries of its tables that are None, which TOML can't write."""
    if isinstance(value, Mapping):
        return {key: _known(item) for key, item in value.items() if item is not None}
    return list(map(_known, value)) if isinstance(value, (list, tuple)) else value
