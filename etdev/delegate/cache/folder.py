"""Entries of the cache as files, each written whole or not at all.

An entry is a file named after its key. No index can go stale: the files in the folder are
the cache, and a file's modification time is when it was last used. Processes need no lock, since
all that have a key write the same bytes, under a temporary name first.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from attrs import frozen

from etdev.errors import CacheError
from etdev.files import replacing

_SUFFIX = ".entry"
_KEY = re.compile(r"[0-9a-f]{64}")
# How far below its limit the folder is trimmed, so that not every entry sets it off again.
_TRIMMED = 0.9


@frozen
class Stored:
    """A file of the folder; `used` is in seconds since the epoch."""

    key: str
    path: Path
    size_bytes: int
    used: float


@frozen
class Folder:
    """Entries in a folder of this machine, which holds at most `size_bytes`."""

    path: Path
    size_bytes: int

    def __str__(self) -> str:
        return str(self.path)

    def load(self, key: str) -> bytes | None:
        """Return the bytes under a key, and note that they were used; None without them."""
        path = self._path(key)
        try:
            # To read anything else, such as a pipe, may take forever.
            data = path.read_bytes() if path.is_file() else None
        except OSError:
            return None
        if data is not None:
            with contextlib.suppress(OSError):
                os.utime(path)
        return data

    def store(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, or raise a CacheError if they can't be written."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A rename may reach the disk before what it names.
            with replacing(path, durable=True) as file:
                file.write(data)
        except OSError as error:
            what = f"the cache folder can't be written ({error.strerror})"
            cure = "name another with --cache, or take --no-cache"
            raise CacheError(str(self), what, cure) from error

    def stored(self) -> list[Stored]:
        """Return the entries, those used longest ago first."""
        found = []
        for path in self._files(f"*{_SUFFIX}"):
            # Another process may have removed it meanwhile.
            with contextlib.suppress(OSError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode) and _KEY.fullmatch(path.stem):
                    found.append(Stored(path.stem, path, status.st_size, status.st_mtime))
        return sorted(found, key=lambda stored: (stored.used, stored.key))

    def trim(self) -> None:
        """Remove the entries used longest ago if there is too much."""
        stored = self.stored()
        total = sum(entry.size_bytes for entry in stored)
        limit = self.size_bytes * _TRIMMED if total > self.size_bytes else total
        for entry in stored:
            if total <= limit:
                break
            _remove(entry.path)
            total -= entry.size_bytes

    def clear(self) -> int:
        """Remove all entries, and nothing else; return their number."""
        stored = self.stored()
        # Those that processes write, or were killed in writing, have a hidden name.
        hidden = [path for path in self._files(".*") if _KEY.fullmatch(path.name[1:65])]
        for path in (*(entry.path for entry in stored), *hidden):
            _remove(path)
        return len(stored)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise CacheError("cache", f"{key!r} is not a key", "a key is 64 hexadecimal digits")
        return self.path / key[:2] / f"{key}{_SUFFIX}"

    def _files(self, pattern: str) -> list[Path]:
        return sorted(self.path.glob(f"[0-9a-f][0-9a-f]/{pattern}"))


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
