"""Outlines of JSON documents: their fields, with the kinds of the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Mappings whose keys are names, not fields.
FREE = ("owned", "kernels", "stages", "before", "after", "fingerprint", "options", "limits")


def outline(name: str, document: Mapping[str, Any]) -> str:
    """The outline of what a command printed, under the command's name, schema and version."""
    lines = sorted(set(_lines({k: v for k, v in document.items() if k != "version"})))
    return "\n".join([f"{name}: {document['schema']} {document['version']}", *lines])


def _lines(value: object, path: str = "") -> Iterator[str]:
    """The paths of all fields, with the kinds of their values."""
    if isinstance(value, dict) and value:
        free = path.rpartition(".")[2].rstrip("[]") in FREE
        for key, item in value.items():
            yield from _lines(item, f"{path}.{'*' if free else key}".lstrip("."))
    elif isinstance(value, list) and value:
        for item in value:
            yield from _lines(item, f"{path}[]")
    else:
        kinds = {dict: "empty", list: "empty", type(None): "null"}
        yield f"{path} {kinds.get(type(value), type(value).__name__)}"
