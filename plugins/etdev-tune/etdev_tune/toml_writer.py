"""Text of a registry file for a `Registry`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import asdict, fields

from etdev.errors import RegistryError
from etdev.registry.registry import PluginEntry, Registry


def toml_of(registry: Registry, comment: Sequence[str] = ()) -> str:
    """Return the text that `parse` reads as this registry, without its cache.

    Args:
        registry: The registry.
        comment: Lines at the head of the file.

    Raises:
        RegistryError: An option has a value that TOML can't write.
    """
    lines = [*(f"# {line}".rstrip() for line in comment), *([""] if comment else [])]
    lines += _settings(registry)
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


def _settings(registry: Registry) -> Iterator[str]:
    """Yield the flags and words of a registry; some also where they are the default."""
    for field in fields(Registry):
        value = getattr(registry, field.name)
        said = value != field.default or field.name in ("unlisted", "simplify")
        # `text` is the file's own text, not a setting.
        if isinstance(value, (bool, str)) and said and field.name != "text":
            yield f"{field.name} = {_value(value)}"
    yield from _pairs({"trusted": registry.trusted})


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
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a basic string of TOML, except that DEL must be escaped there, too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    what = f"{value!r} can't be written as TOML"
    raise RegistryError("registry", what, "give text, numbers, lists or tables")
