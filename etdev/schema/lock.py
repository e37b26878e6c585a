"""The record of everything that a .pte was made with, so that it can be reproduced exactly."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from etdev.errors import LockError
from etdev.schema.difference import Difference, Gained
from etdev.schema.structuring import CONVERTER, REFUSALS

VERSION = 1
# An upgrade of torch changes dozens of values; an error names the first few.
_SHOWN = 8


@frozen
class Lock:
    """Everything that a .pte was made with, as plain data.

    Args:
        setup: Versions, plugins with their options, devices, pins, limits, the budget, and whether
            a partition that can't be compiled falls back.
        program: By method, the partitions in run order: name, plugin, backend, device, cache key
            (empty if it has none), and the digest of its payload.
        files: Digests of the .pte and its .ptd files, by suffix.
    """

    setup: Mapping[str, Any]
    program: Mapping[str, Any]
    files: Mapping[str, Any]

    def to_json(self) -> str:
        """Return the lock as sorted text, for line-by-line comparison."""
        content = {"lock": VERSION, **asdict(self, recurse=False)}
        return json.dumps(content, indent=2, sort_keys=True) + "\n"

    @classmethod
    def read(cls, path: Path) -> Lock:
        """Read a lock file.

        Raises:
            LockError: It can't be read, or is not a lock of this version of etdev.
        """
        cure = f"write it with etdev lower --lock {path}"
        try:
            data = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise LockError(str(path), f"can't be read ({error.strerror})", cure) from error
        except (ValueError, RecursionError) as error:
            raise LockError(str(path), "is not a lock: it is not JSON", cure) from error
        if not isinstance(data, dict) or data.get("lock") != VERSION:
            raise LockError(str(path), f"is not a lock of version {VERSION}", cure)
        try:
            return CONVERTER.structure(data, cls)
        except REFUSALS as error:
            raise LockError(str(path), "lacks setup, program or files", cure) from error

    def check_setup(self, setup: Mapping[str, Any], path: Path) -> None:
        """Raise a LockError that lists the differences if a lowering has another setup."""
        _refuse(path, _problems(self.setup, setup))

    def check(self, made: Lock, path: Path) -> None:
        """Raise a LockError that lists the differences if a .pte is not the locked one."""
        setup = _problems(self.setup, made.setup)
        program = [name for name, *_ in _changes(self.program, made.program)]
        if program and not setup and all(name.endswith(".payload") for name in program):
            names = [name.split(".")[-2] for name in program]
            raise _recompiled(made, names, path)
        parts = [*setup, *_problems(self.program, made.program, "program.")]
        # Different partitions explain different files.
        _refuse(path, parts or _problems(self.files, made.files, "digest."))

    def diff(self, other: Lock, before: str = "before", after: str = "after") -> Difference:
        """Compare this lock with a newer one, with these names of the two."""
        parts = [*_gained("setup", "", self.setup, other.setup)]
        for method in dict.fromkeys([*self.program, *other.program]):
            old, new = self.program.get(method), other.program.get(method)
            if old is None or new is None:
                was, now = (None if side is None else f"method {method}" for side in (old, new))
                parts.append(Gained("method", method, was, now))
            parts += _gained("partition", method, old or [], new or [])
        parts += _gained("contents", "", self.files, other.files)
        return Difference(before, after, parts=tuple(parts))


def is_lock(path: Path) -> bool:
    """Return True if a file is JSON with the key `lock`."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "lock" in data and "schema" not in data


def _recompiled(made: Lock, names: Sequence[str], path: Path) -> LockError:
    """Return the error for a compiler that writes other bytes when it compiles again."""
    partitions = [p for method in made.program.values() for p in method if p["partition"] in names]
    backends = " and ".join(sorted({partition["backend"] for partition in partitions}))
    return LockError(
        str(path),
        f"has the same partitions, and {backends} compiled other bytes of them: "
        f"{', '.join(names[:_SHOWN])}",
        "lower with the cache that the locked .pte was made with, since not every compiler "
        "writes the same bytes in another process; or lock it anew without --locked",
    )


def _refuse(path: Path, problems: Sequence[str]) -> None:
    if problems:
        more = len(problems) - _SHOWN
        rest = [f"and {more} more"] if more > 0 else []
        what = f"is not what would be made: {', '.join([*problems[:_SHOWN], *rest])}"
        raise LockError(str(path), what, "restore that, or lock it anew without --locked")


def _problems(locked: Any, made: Any, prefix: str = "") -> list[str]:
    """Return the differences in words: `torch is 2.13.0, locked 2.14.1`."""
    return [
        f"{prefix}{name} is {'missing' if now is None else now}, "
        f"locked {'missing' if was is None else was}"
        for name, was, now in _changes(locked, made)
    ]


def _gained(kind: str, method: str, first: Any, second: Any) -> Iterator[Gained]:
    for name, *texts in _changes(first, second):
        # Digests are shown by their first digits.
        short = [text and (text[:12] if len(text) == 64 else text) for text in texts]
        was, now = (None if text is None else f"{name} {text}".strip() for text in short)
        yield Gained(kind, method, was, now)


def _changes(first: Any, second: Any) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the dotted name of each value that differs, with both values as text."""
    old, new = dict(_leaves(first, ())), dict(_leaves(second, ()))
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name), new.get(name)
        # A lowering without a cache has no keys; the digests of the payloads say the rest.
        if was != now and not (name.endswith("key") and "" in (was, now)):
            yield name, was, now


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
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
    """Return the names of the tables in a list; an empty list unless each has a name of its own."""
    tables = [item for item in items if isinstance(item, Mapping)]
    # Plugins have names, and partitions name themselves.
    names = [str(table.get("name", table.get("partition", ""))) for table in tables]
    return names if len({*names, ""}) == len(items) + 1 else []


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return "none" if value is None else str(value)
