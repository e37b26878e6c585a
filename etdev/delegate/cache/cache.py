"""The compile cache: a folder of this machine and, if wanted, a remote behind it.

Anything wrong with either is a warning, once, and a lowering goes on without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from attrs import define, field

from etdev.delegate.cache.entry import Entry
from etdev.delegate.cache.folder import Folder
from etdev.delegate.cache.remote import Remote
from etdev.errors import CacheError, EtdevWarning
from etdev.schema.caching import CacheSettings

T = TypeVar("T")


@define
class Cache:
    """Entries by their keys.

    Args:
        settings: Where they are kept.
    """

    settings: CacheSettings
    _folder: Folder | None = field(init=False)
    _remote: Remote | None = field(init=False)
    _checked: bool = field(default=False, init=False)
    _grown: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self._folder = None if settings.off else Folder(settings.path, settings.size_bytes)
        self._remote = Remote(settings.url, settings.timeout_s) if settings.url else None

    @property
    def enabled(self) -> bool:
        """True if a local or remote cache is usable."""
        folder, checked, self._checked = self._folder, self._checked, True
        if folder and not checked and not _tried(folder.check)[0]:
            self._folder = None
        return bool(self._folder or self._remote)

    def load(self, key: str) -> Entry | None:
        """Return the entry under a key; None without a sound one."""
        if not self.enabled:
            return None
        if self._folder and (data := self._folder.load(key)) is not None:
            if entry := self._entry(data, str(self._folder.path), key):
                return entry
            self._folder.remove(key)
        remote = self._remote
        reached, data = _tried(lambda: remote.load(key)) if remote else (False, None)
        if not reached:
            self._remote = None
        if data is None:
            return None
        entry = self._entry(data, self.settings.url, key)
        if entry:
            self._keep(key, data)
        return entry

    def store(self, entry: Entry) -> None:
        """Keep an entry, in the folder and behind the URL."""
        if not self.enabled:
            return
        data, remote = entry.to_bytes(), self._remote
        self._keep(entry.key, data)
        if remote and not _tried(lambda: remote.store(entry.key, data))[0]:
            self._remote = None

    def forget(self, key: str) -> None:
        """Remove an entry that turned out to be unusable."""
        if self._folder:
            self._folder.remove(key)

    def close(self) -> None:
        """Trim the folder if anything was added."""
        if self._folder and self._grown:
            self._grown = False
            self._folder.trim()

    def _keep(self, key: str, data: bytes) -> None:
        if folder := self._folder:
            self._grown = True
            if not _tried(lambda: folder.store(key, data))[0]:
                self._folder = None

    def _entry(self, data: bytes, where: str, key: str) -> Entry | None:
        return _tried(lambda: Entry.from_bytes(data, f"{where} {key[:12]}", key))[1]


def _tried(call: Callable[[], T]) -> tuple[bool, T | None]:
    """Return True and the result of a call; False and None after a warning if it fails."""
    try:
        return True, call()
    except CacheError as error:
        warnings.warn(f"compile cache: {error}", EtdevWarning, stacklevel=2)
        return False, None
