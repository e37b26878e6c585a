"""Differences between two locks: what the .pte files were made with, and what came out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etdev.schema.difference import Difference, Gained
from etdev.schema.lock import Lock, unkeyed

# What a table in a list is known by: a plugin, a partition.
_NAMES = ("name", "partition")
# Digests are told apart by their first digits.
_DIGITS = 12


def lock_diff(
    first: Lock, second: Lock, before: str = "before", after: str = "after"
) -> Difference:
    """Compare two locks.

    Args:
        first: The lock that was.
        second: The lock that is.
        before: What the first is called.
        after: What the second is called.
    """
    parts = [*_gained("setup", "", first.setup, second.setup)]
    for method in dict.fromkeys([*first.program, *second.program]):
        old, new = first.program.get(method), second.program.get(method)
        if old is None or new is None:
            was, now = (None if side is None else f"method {method}" for side in (old, new))
            parts.append(Gained("method", method, was, now))
        parts += _gained("partition", method, old or [], new or [])
    parts += _gained("contents", "", first.files, second.files)
    return Difference(before, after, parts=tuple(parts))


def _gained(kind: str, method: str, first: Any, second: Any) -> Iterator[Gained]:
    old, new = dict(_leaves(first, ())), dict(_leaves(second, ()))
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name), new.get(name)
        if was != now and not unkeyed(name, was, now):
            yield Gained(kind, method, _told(name, was, now), _told(name, now, was))


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The values in a table, by the keys to them."""
    if isinstance(value, Mapping) and (value or not path):
        for key in value:
            yield from _leaves(value[key], (*path, str(key)))
    elif isinstance(value, list) and (names := _names(value)):
        yield ".".join((*path, "order")), ", ".join(names)
        for name, item in zip(names, value, strict=True):
            yield from _leaves(item, (*path, name))
    elif value != [] or path:
        yield ".".join(path), _text(value)


def _names(items: Sequence[Any]) -> list[str]:
    """The names of the tables in a list; nothing if they have none, or the same."""
    names = [
        next((item[key] for key in _NAMES if isinstance(item.get(key), str)), "")
        for item in items
        if isinstance(item, Mapping)
    ]
    return names if len({*names, ""}) == len(items) + 1 else []


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return "none" if value is None else str(value)


def _told(name: str, text: str | None, other: str | None) -> str | None:
    """A value with its key, cut short if it is a digest and the two differ where it is cut."""
    if text is None:
        return None
    digest = len(text) == 64 and text[:_DIGITS] != (other or "")[:_DIGITS]
    return f"{name} {text[:_DIGITS] if digest else text}".strip()
