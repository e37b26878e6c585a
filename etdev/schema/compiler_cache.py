"""Intermediate results that a backend's compiler keeps in the compile cache for its later calls.

They are partial results that another call can use, such as a compiled structure without weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Store(Protocol):
    """The entries of one compiler."""

    def load(self, name: bytes) -> bytes | None:
        """Return the entry of a name; None without one."""

    def store(self, name: bytes, data: bytes) -> None:
        """Keep an entry."""


_STORE: ContextVar[Store | None] = ContextVar("etdev.schema.compiler_cache", default=None)


def kept(name: bytes) -> bytes | None:
    """Return the data kept under a name, by this process or another; None without an entry.

    Call it inside `preprocess`. Only calls of the same backend see the entry, with the same
    versions, options and device; the name must contain everything else that the data depends on.
    Like every entry of the cache, anyone may have made it: check the data before use.
    """
    store = _STORE.get()
    return store.load(name) if store else None


def keep(name: bytes, data: bytes) -> None:
    """Keep data under a name; nothing happens without a cache."""
    if store := _STORE.get():
        store.store(name, data)


@contextmanager
def standing(store: Store | None) -> Iterator[None]:
    """Have `kept` and `keep` use these entries."""
    token = _STORE.set(store)
    try:
        yield
    finally:
        _STORE.reset(token)
