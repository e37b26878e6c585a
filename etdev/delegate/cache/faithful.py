"""Faithful text: of a value, such that only equal values have it, whatever process they are in."""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list


class Unhashable(Exception):
    """A value that the compiled bytes may depend on has no faithful digest; the text says which."""


_PLAIN = frozenset({bool, int, str, bytes, type(None)})
_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)
# torch.fx makes the arguments of a node immutable, and backends can't tell.
_SEQUENCES: dict[type, str] = {
    tuple: "tuple",
    list: "list",
    immutable_list: "list",
    torch.Size: "Size",
}
_DICTS: dict[type, str] = {
    dict: "dict",
    immutable_dict: "dict",
    OrderedDict: "OrderedDict",
    defaultdict: "defaultdict",
}


def faithful(value: Any, special: Callable[[Any], str | None] | None = None) -> str:
    """A text that only equal values have.

    Args:
        value: Any value.
        special: Asked first about what is not a number or a text; None if it doesn't know either.

    Raises:
        Unhashable: It, or something in it, has no such text.
    """
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if special and (known := special(value)) is not None:
        return known
    if kind in _SEQUENCES:
        return f"{_SEQUENCES[kind]}({', '.join([faithful(item, special) for item in value])})"
    if kind in _DICTS:
        # In its order: a backend may go through it.
        pairs = [f"{faithful(k, special)}: {faithful(v, special)}" for k, v in value.items()]
        return f"{_DICTS[kind]}({', '.join(pairs)})"
    if kind in (set, frozenset):
        return f"set({', '.join(sorted(faithful(item, special) for item in value))})"
    if kind is float:
        return _bits(value)
    if kind is complex:
        return f"({_bits(value.real)}, {_bits(value.imag)})"
    if isinstance(value, _TORCH):
        return str(value)
    return f"{kind.__module__}.{kind.__qualname__} {faithful(_content(value), special)}"


def _bits(value: float) -> str:
    """Its bits, since there is more than one NaN."""
    return f"float {struct.pack('>d', value).hex()}"


def _content(value: Any) -> Any:
    """What a value of a class consists of."""
    if isinstance(value, enum.Enum):
        return value.name, value.value
    own = getattr(value, "__dict__", {})
    if isinstance(value, tuple) and hasattr(value, "_fields") and not own:
        return tuple(value)
    kind = type(value)
    if attrs.has(kind):
        return {field.name: getattr(value, field.name) for field in attrs.fields(kind)} | own
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: getattr(value, field.name) for field in fields} | own
    raise Unhashable(f"a value of {kind.__name__}, which has no faithful text")
