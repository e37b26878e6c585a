"""Text of a registry file for a `Registry`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from attrs import asdict

from etdev.errors import RegistryError
from etdev.registry.registry import PluginEntry, Registry
from etdev.schema.options import Surface, settings_on


def toml_of(registry: Registry, comment: Sequence[str] = ()) -> str:
    """Return the text that `parse` reads as this registry, without its cache, under a comment.

    Raises:
        RegistryError: An option has a value that TOML can't write.
    """
    values = {own.name: getattr(registry, own.name) for own in settings_on(Surface.REGISTRY)}
    plain = (bool, int, float, str)
    settings = {name: value for name, value in values.items() if isinstance(value, plain)}
    document = {
        **settings,
        "trusted": registry.trusted,
        "pin": [asdict(pin) for pin in registry.pins] or None,
        "budget": asdict(registry.budget) if registry.budget else None,
        "plugins": {entry.name: _of_plugin(entry) for entry in registry.entries},
    }
    try:
        text = tomlkit.dumps(_known(document))
    except ValueError as error:
        what = f"{error} and can't be written as TOML"
        raise RegistryError("registry", what, "give text, numbers, lists or tables") from error
    return "".join([*(f"# {line}".rstrip() + "\n" for line in comment), text])


def _of_plugin(entry: PluginEntry) -> dict[str, Any]:
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
