"""The cache: a folder of this machine and, if wanted, a remote behind it.

Whatever is wrong with either is a warning, once, and a lowering goes on without it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

from attrs import define, field

from etdev.delegate.cache.entry import Entry
from etdev.delegate.cache.folder import Folder
from etdev.delegate.cache.remote import Remote
from etdev.errors import CacheError, EtdevWarning
from etdev.schema.caching import CacheSettings


@define
class Cache:
    """Entries by their keys.

    Args:
        settings: Where they are kept.
    """

    settings: CacheSettings
    folder: Folder | None = field(init=False)
    remote: Remote | None = field(init=False)
    _checked: bool = field(default=False, init=False)
    _grown: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self.folder = None if settings.off else Folder(settings.path, settings.size_bytes)
        self.remote = Remote(settings.url, settings.timeout_s) if settings.url else None

    @property
    def enabled(self) -> bool:
        """Whether there is anywhere to look."""
        if not self._checked:
            self._checked = True
            if self.folder and not self._tried(self.folder.check):
                self.folder = None
        return bool(self.folder or self.remote)

    def load(self, key: str) -> Entry | None:
        """The entry under a key; None if there isn't a sound one."""
        if not self.enabled:
            return None
        if self.folder and (data := self.folder.load(key)) is not None:
            if entry := self._read(data, f"{self.folder.path} {key[:12]}", key):
                return entry
            self.folder.remove(key)
        data = self._remote_data(key)
        if data is None:
            return None
        entry = self._read(data, f"{self.settings.url} {key[:12]}", key)
        if entry:
            self._keep(key, data)
        return entry

    def store(self, entry: Entry) -> None:
        """Keep an entry, here and behind the URL."""
        if not self.enabled:
            return
        data = entry.to_bytes()
        self._keep(entry.key, data)
        remote = self.remote
        if remote and not self._tried(functools.partial(remote.store, entry.key, data)):
            self.remote = None

    def forget(self, key: str) -> None:
        """Remove an entry that turned out to be unusable."""
        if self.folder:
            self.folder.remove(key)

    def close(self) -> None:
        """Trim the folder if anything was added."""
        if self.folder and self._grown:
            self._grown = False
            self.folder.trim()

    def _remote_data(self, key: str) -> bytes | None:
        if not self.remote:
            return None
        try:
            return self.remote.load(key)
        except CacheError as error:
            self.remote = None
            _warn(error)
            return None

    def _keep(self, key: str, data: bytes) -> None:
        folder = self.folder
        if folder:
            self._grown = True
            if not self._tried(functools.partial(folder.store, key, data)):
                self.folder = None

    def _read(self, data: bytes, who: str, key: str) -> Entry | None:
        try:
            return Entry.from_bytes(data, who, key)
        except CacheError as error:
            _warn(error)
            return None

    def _tried(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except CacheError as error:
            _warn(error)
            return False
        return True


def _warn(error: CacheError) -> None:
    warnings.warn(f"compile cache: {error}", EtdevWarning, stacklevel=2)
