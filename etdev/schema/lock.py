"""The lock: what a .pte was made with, so that the same can be made again, or nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen, validators

from etdev.errors import LockError

VERSION = 1
# Lines of an error; whoever upgrades torch gets dozens.
_SHOWN = 8
# A difference in the digest of what was compiled, not in what it was compiled of.
_PAYLOAD = re.compile(r"^program\.\S+\.payload is ")
_TABLE = validators.instance_of(dict)


@frozen
class Lock:
    """What a .pte was made with, as plain data.

    Args:
        setup: Versions, plugins with their options, devices, pins, limits, budget, and what becomes
            of a partition that can't be compiled.
        program: By method, the partitions in run order: name, plugin, backend, device, the key of
            what was compiled (empty if it has none), and the digest of its payload.
        files: Digests of the .pte and its .ptd files, by suffix.
    """

    setup: Mapping[str, Any] = field(validator=_TABLE)
    program: Mapping[str, Any] = field(factory=dict, validator=_TABLE)
    files: Mapping[str, Any] = field(factory=dict, validator=_TABLE)

    def to_json(self) -> str:
        """The lock as text, sorted, so that two of them can be compared line by line."""
        content = {
            "lock": VERSION,
            "setup": self.setup,
            "program": self.program,
            "files": self.files,
        }
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
            return cls(data["setup"], data["program"], data["files"])
        except (KeyError, TypeError) as error:
            raise LockError(str(path), "lacks setup, program or files", cure) from error

    def check_setup(self, setup: Mapping[str, Any], path: Path) -> None:
        """Refuse to begin with another setup.

        Raises:
            LockError: It differs; the text says in what.
        """
        _refuse(path, list(_differences(self.setup, setup, ())))

    def check(self, made: Lock, path: Path) -> None:
        """Refuse another .pte than the locked one.

        Raises:
            LockError: It differs; the text says in what.
        """
        problems = [*_differences(self.setup, made.setup, ())]
        problems += _differences(self.program, made.program, ("program",))
        if problems and all(_PAYLOAD.search(problem) for problem in problems):
            raise self._recompiled(made, path)
        # The bytes say nothing more if partitions differ.
        _refuse(path, problems or list(_differences(self.files, made.files, ("digest",))))

    def _recompiled(self, made: Lock, path: Path) -> LockError:
        """The same partitions have other bytes: a compiler that doesn't repeat itself."""
        pairs = [
            (old, new)
            for method, partitions in self.program.items()
            for old, new in zip(partitions, made.program[method], strict=True)
            if old["payload"] != new["payload"]
        ]
        backends = " and ".join(sorted({new["backend"] for _, new in pairs}))
        names = ", ".join(new["partition"] for _, new in pairs[:_SHOWN])
        return LockError(
            str(path),
            f"has the same partitions, and {backends} compiled other bytes of them: {names}",
            "lower with the cache that the locked .pte was made with, since not every compiler "
            "writes the same bytes in another process; or lock it anew without --locked",
        )


def is_lock(path: Path) -> bool:
    """Whether a file is JSON that says of itself that it is a lock."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "lock" in data and "schema" not in data


def _refuse(path: Path, problems: Sequence[str]) -> None:
    if problems:
        more = len(problems) - _SHOWN
        rest = [f"and {more} more"] if more > 0 else []
        what = f"is not what would be made: {', '.join([*problems[:_SHOWN], *rest])}"
        raise LockError(str(path), what, "restore that, or lock it anew without --locked")


def _differences(locked: Any, made: Any, path: tuple[str, ...]) -> Iterator[str]:
    """What differs, as `torch is 2.13.0, locked 2.14.1`."""
    if isinstance(locked, Mapping) and isinstance(made, Mapping):
        for key in dict.fromkeys([*locked, *made]):
            yield from _differences(locked.get(key), made.get(key), (*path, str(key)))
    elif isinstance(locked, list) and isinstance(made, list) and len(locked) == len(made):
        for number, (one, other) in enumerate(zip(locked, made, strict=True)):
            yield from _differences(one, other, (*path, str(number)))
    elif locked != made and not unkeyed(path[-1], locked, made):
        yield f"{'.'.join(path)} is {_text(made)}, locked {_text(locked)}"


def unkeyed(name: str, one: Any, other: Any) -> bool:
    """Whether two values are keys of what was compiled, one of them without a cache.

    It says nothing of the bytes, which have a digest of their own.
    """
    return name.endswith("key") and "" in (one, other)


def _text(value: Any) -> str:
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return f"{len(value)} of them"
    return "missing" if value is None else str(value)
