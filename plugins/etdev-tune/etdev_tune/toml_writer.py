"""Text of a registry file for a `Registry`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import asdict, fields

from etdev.errors import RegistryError
from etdev.registry.registry import PluginEntry, Registry


def toml_of(registry: Registry, comment: Sequence[str] = ()) -> str:
    """Return the text that `parse` reads as this registry, without its cache, under a comment.

    Raises:
        RegistryError: An option has a value that TOML can't write.
    """
    # `text` is the file's own text, not a setting.
    settings = {
        field.name: value
        for field in fields(Registry)
        if isinstance(value := getattr(registry, field.name), (bool, str)) and field.name != "text"
    }
    lines = [f"# {line}".rstrip() for line in comment]
    lines += _pairs({**settings, "trusted": registry.trusted})
    for pin in registry.pins:
        lines += ["", "[[pin]]", *_pairs(asdict(pin))]
    if registry.budget:
        lines += ["", "[budget]", *_pairs(asdict(registry.budget))]
    for entry in registry.entries:
        table = f"plugins.{_key(entry.name)}"
        lines += ["", f"[{table}]", *_pairs(_of_plugin(entry))]
        if entry.options:
            lines += ["", f"[{table}.options]", *_pairs(entry.options)]
    return "\n".join(lines) + "\n"


def _of_plugin(entry: PluginEntry) -> dict[str, Any]:
    """Return the table of a plugin, with None for what it doesn't have."""
    return {
        "optional": entry.optional or None,
        "partitioner": entry.partitioner or None,
        **asdict(entry.limits),
        "device": {key: str(device) for key, device in entry.devices.items()} or None,
    }


def _pairs(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table, without values that are None, which TOML can't write."""
    for key, value in values.items():
        if value is not None:
            yield f"{_key(key)} = {_value(value)}"


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "_").isidentifier()
    return name if bare else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, (bool, str)):
        # JSON's words are TOML's, except that TOML's text has no DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    what = f"{value!r} can't be written as TOML"
    raise RegistryError("registry", what, "give text, numbers, lists or tables")
