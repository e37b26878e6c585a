"""The folder: entries as files, each written whole or not at all.

An entry is a file named after its key. There is no index to go stale: what is in the folder is in
the cache, and a file's modification time is when it was last used. Processes need no lock, since
all that have a key write the same bytes, under a temporary name first.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from etdev.delegate.cache.entry import Entry
from etdev.errors import CacheError
from etdev.files import replacing, try_writing

_SUFFIX = ".entry"
_KEY = re.compile(r"[0-9a-f]{64}")
# A file of that age belongs to a process that was killed while it wrote.
_ABANDONED_S = 3600
# How far below its limit the folder is trimmed, so that not every entry sets it off again.
_TRIMMED = 0.9


@frozen
class Stored:
    """A file of the folder.

    Args:
        path: Its path.
        size_bytes: Its size.
        used: When it was last used, in seconds since the epoch.
    """

    path: Path
    size_bytes: int
    used: float

    @property
    def key(self) -> str:
        """The key of its entry."""
        return self.path.name.removesuffix(_SUFFIX)


@frozen
class Folder:
    """Entries in a folder of this machine.

    Args:
        path: The folder.
        size_bytes: What it may hold.
    """

    path: Path
    size_bytes: int

    def check(self) -> None:
        """Make the folder, and a file in it.

        Raises:
            CacheError: It can't be written; the text says why.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            try_writing(self.path)
        except OSError as error:
            raise self._unwritable(error) from error

    def load(self, key: str) -> bytes | None:
        """The bytes under a key, which are used now; None without them."""
        data = self.read(key)
        if data is not None:
            with contextlib.suppress(OSError):
                os.utime(self._path(key))
        return data

    def read(self, key: str) -> bytes | None:
        """The bytes under a key; None without them."""
        path = self._path(key)
        try:
            # To read anything else, such as a pipe, may take forever.
            return path.read_bytes() if path.is_file() else None
        except OSError:
            return None

    def store(self, key: str, data: bytes) -> None:
        """Keep bytes under a key.

        Raises:
            CacheError: They can't be written.
        """
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A rename may reach the disk before what it names.
            with replacing(path, durable=True) as file:
                file.write(data)
        except OSError as error:
            raise self._unwritable(error) from error

    def remove(self, key: str) -> None:
        """Forget a key."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def stored(self) -> list[Stored]:
        """Its entries, those used longest ago first."""
        found = []
        for path in self._files():
            if path.suffix == _SUFFIX and _KEY.fullmatch(path.name.removesuffix(_SUFFIX)):
                # Another process may have trimmed it.
                with contextlib.suppress(OSError):
                    status = path.stat()
                    if not stat.S_ISREG(status.st_mode):
                        continue
                    found.append(Stored(path, status.st_size, status.st_mtime))
        return sorted(found, key=lambda stored: (stored.used, stored.key))

    def trim(self) -> int:
        """Remove what was used longest ago, and what killed processes left; how many entries."""
        self._remove_abandoned(_ABANDONED_S)
        stored = self.stored()
        total, removed = sum(entry.size_bytes for entry in stored), 0
        if total <= self.size_bytes:
            return 0
        for entry in stored:
            if total <= self.size_bytes * _TRIMMED:
                break
            self.remove(entry.key)
            total -= entry.size_bytes
            removed += 1
        return removed

    def clear(self) -> int:
        """Remove all entries, and nothing else; how many."""
        stored = self.stored()
        for entry in stored:
            self.remove(entry.key)
        self._remove_abandoned(0)
        return len(stored)

    def verify(self) -> Iterator[tuple[Stored, str]]:
        """Each entry with what is wrong with it; empty text for a sound one."""
        for stored in self.stored():
            try:
                Entry.from_bytes(stored.path.read_bytes(), str(stored.path), stored.key)
            except CacheError as error:
                yield stored, error.what
            except OSError as error:
                yield stored, f"can't be read ({error.strerror})"
            else:
                yield stored, ""

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise CacheError("cache", f"{key!r} is not a key", "a key is 64 hexadecimal digits")
        return self.path / key[:2] / f"{key}{_SUFFIX}"

    def _files(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            for folder in sorted(self.path.iterdir()):
                if re.fullmatch(r"[0-9a-f]{2}", folder.name) and folder.is_dir():
                    with contextlib.suppress(OSError):
                        yield from sorted(folder.iterdir())

    def _remove_abandoned(self, age_s: float) -> None:
        before = time.time() - age_s
        for path in self._files():
            if _KEY.fullmatch(path.name[1:65]) and path.name.startswith("."):
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime <= before:
                        path.unlink()

    def _unwritable(self, error: OSError) -> CacheError:
        what = f"the cache folder can't be written ({error.strerror})"
        return CacheError(str(self.path), what, "name another with --cache, or take --no-cache")
