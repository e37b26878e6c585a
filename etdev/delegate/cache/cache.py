"""The compile cache: a folder of this machine and, if wanted, a remote behind it.

Anything wrong with either is a warning, once, and a lowering goes on without it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from attrs import define, evolve, field, frozen
from blake3 import blake3
from executorch.exir.backend.backend_details import PreprocessResult

from etdev.delegate.cache.canonical import Uncacheable
from etdev.delegate.cache.digests import Digests
from etdev.delegate.cache.entry import CacheEntry
from etdev.delegate.cache.folder import Folder
from etdev.delegate.cache.key import name_of
from etdev.delegate.cache.remote import Remote
from etdev.delegate.compiler_calls import Call, Task
from etdev.errors import CacheError, EtdevWarning
from etdev.schema.caching import CacheSettings
from etdev.schema.compiler_cache import standing

T = TypeVar("T")
# The name of a compiler's own data in an entry.
_DATA = "data"


@define
class Cache:
    """Entries by their keys, kept where the settings say."""

    settings: CacheSettings
    _folder: Folder = field(init=False)
    # The nearest first; a place that fails is left out from then on.
    _places: list[Folder | Remote] = field(init=False)
    _grown: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self._folder = Folder(settings.path, settings.size_bytes)
        self._places = [] if settings.off else [self._folder]
        if settings.url:
            self._places.append(Remote(settings.url, settings.timeout_s))

    @property
    def enabled(self) -> bool:
        """True if a local or remote cache is usable."""
        return bool(self._places)

    def load(self, key: str) -> CacheEntry | None:
        """Return the entry under a key; None without a sound one."""
        for place in list(self._places):
            data = self._tried(place, functools.partial(place.load, key))
            if data is None:
                continue
            try:
                entry = CacheEntry.from_bytes(data, f"{place} {key[:12]}", key)
            except CacheError as error:
                _warn(error)
                continue
            if place is not self._folder:
                self._store(self._folder, key, data)
            return entry
        return None

    def store(self, entry: CacheEntry) -> None:
        """Keep an entry, in the folder and behind the URL."""
        data = entry.to_bytes()
        for place in list(self._places):
            self._store(place, entry.key, data)

    def close(self) -> None:
        """Trim the folder if anything was added."""
        if self._grown:
            self._grown = False
            self._folder.trim()

    def _store(self, place: Folder | Remote, key: str, data: bytes) -> None:
        self._grown = True
        self._tried(place, functools.partial(place.store, key, data))

    def _tried(self, place: Folder | Remote, call: Callable[[], T]) -> T | None:
        """Return the result of a call; if it fails, warn and return None."""
        try:
            return call() if place in self._places else None
        except CacheError as error:
            _warn(error)
            self._places.remove(place)
            return None


def _warn(error: CacheError) -> None:
    warnings.warn(f"compile cache: {error}", EtdevWarning, stacklevel=2)


@define(eq=False)
class Memory:
    """The cache as the calls of one lowering use it; they have keys without one, too."""

    cache: Cache | None = None
    weights: Digests = field(factory=Digests, init=False)

    @property
    def enabled(self) -> bool:
        """True if there is a usable cache."""
        return self.cache is not None and self.cache.enabled

    def task(self, call: Call, environment: Mapping[str, str]) -> Task:
        """Return the task of a call with its key, or with why it has none."""
        try:
            name = name_of(call, environment, self.weights)
        except Uncacheable as error:
            return Task(call, why=str(error))
        return Task(call, name.key, name.place)

    def results(self, task: Task) -> list[PreprocessResult] | None:
        """Return the results of a task from the cache, or None."""
        entry = self.cache.load(task.key) if self.cache and task.key else None
        if entry is None:
            return None
        who = f"cache entry {task.key[:12]}"
        try:
            return entry.results(len(task.call.jobs), who, self.weights)
        except CacheError:
            # The entry of the fresh results replaces it.
            return None

    def entry(self, task: Task, results: Sequence[PreprocessResult]) -> CacheEntry:
        """Return the entry of a task with a key, or raise Uncacheable."""
        return CacheEntry.of(results, task.key, self.weights)

    def keep(self, task: Task, results: Sequence[PreprocessResult]) -> Task:
        """Keep the results of a task; return the task, with the reason if that is not possible."""
        try:
            if self.enabled and task.key:
                self.store(self.entry(task, results))
        except Uncacheable as error:
            return evolve(task, why=str(error))
        return task

    def store(self, entry: CacheEntry) -> None:
        """Keep an entry if there is a cache."""
        if self.cache:
            self.cache.store(entry)

    @contextmanager
    def compiler_cache(self, task: Task) -> Iterator[None]:
        """Let the compiler of a task use the cache for its own data."""
        usable = self.cache if self.enabled and task.place else None
        with standing(CompilerCache(usable, task.place) if usable else None):
            yield

    def close(self) -> None:
        """Trim the cache."""
        if self.cache:
            self.cache.close()


@frozen
class CompilerCache:
    """The data that a compiler keeps in the cache for itself, shared by calls of the same place."""

    cache: Cache
    place: str

    def load(self, name: bytes) -> bytes | None:
        """Return the data under a name; None without it."""
        entry = self.cache.load(self._key(name))
        return entry.blobs.get(_DATA) if entry else None

    def store(self, name: bytes, data: bytes) -> None:
        """Keep data under a name."""
        self.cache.store(CacheEntry(self._key(name), None, {_DATA: data}))

    def _key(self, name: bytes) -> str:
        return str(blake3(f"kept in {self.place} ".encode() + name).hexdigest())
