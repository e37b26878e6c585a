"""Plain values: what can be written as JSON and read as the same value again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

_TORCH: dict[str, type] = {
    "dtype": torch.dtype,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}


class Stays(Exception):
    """Something can't be had elsewhere as it is here; the text says what."""


def plain(value: Any, special: Callable[[Any], Any] | None = None) -> Any:
    """A value as JSON has it.

    Args:
        value: None, a number, text, a value of torch's, or a collection of these.
        special: Asked about any other value; what it returns is kept, None if it can't be.

    Raises:
        Stays: A value is of another type; subclasses are, too.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return ["float", value.hex()]
    if type(value) in (list, tuple):
        return [type(value).__name__, [plain(item, special) for item in value]]
    if isinstance(value, (list, tuple)) and type(value).__module__.startswith("torch.fx"):
        # torch.fx keeps the lists of arguments as immutable ones, and makes them so again.
        return ["list", [plain(item, special) for item in value]]
    if isinstance(value, Mapping) and (
        type(value) is dict or type(value).__module__.startswith("torch.fx")
    ):
        return ["dict", [[plain(k, special), plain(v, special)] for k, v in value.items()]]
    if isinstance(value, torch.device):
        return ["device", str(value)]
    for name, kind in _TORCH.items():
        if isinstance(value, kind):
            return [name, str(value).removeprefix("torch.")]
    if special and (known := special(value)) is not None:
        return ["special", known]
    raise Stays(f"a value of {type(value).__name__} can't be written down")


def restored(value: Any, special: Callable[[Any], Any] | None = None) -> Any:
    """What `plain` was given.

    Args:
        value: What it returned.
        special: Given what the other `special` returned.
    """
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "float":
        return float.fromhex(content)
    if kind == "dict":
        return {restored(k, special): restored(v, special) for k, v in content}
    if kind in ("list", "tuple"):
        items = [restored(item, special) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "device":
        return torch.device(content)
    if kind in _TORCH:
        return getattr(torch, content)
    if special is None:
        raise ValueError(value)
    return special(content)
