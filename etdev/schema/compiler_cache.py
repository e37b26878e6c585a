"""The shelf: what a backend's compiler keeps in the compile cache for its later calls.

What a call of it gives is in the cache anyway, under all that the call depends on. The shelf is for
what a result of another call can be made of, such as a compiled structure without its weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Shelf(Protocol):
    """Where a compiler's things are kept."""

    def load(self, name: bytes) -> bytes | None:
        """What is kept under a name; None without it."""

    def store(self, name: bytes, data: bytes) -> None:
        """Keep something under a name."""


_SHELF: ContextVar[Shelf | None] = ContextVar("etdev.schema.compiler_cache", default=None)


def kept(name: bytes) -> bytes | None:
    """What was kept under a name, in this process or in another; None without it.

    Call it inside `preprocess`. Only calls of the same backend see it, with the same versions,
    options and device; all else that it depends on belongs into the name. Like every entry of the
    cache it may have been made by anyone: check it before use.
    """
    shelf = _SHELF.get()
    return shelf.load(name) if shelf else None


def keep(name: bytes, data: bytes) -> None:
    """Keep something under a name; nothing happens where there is no cache."""
    shelf = _SHELF.get()
    if shelf:
        shelf.store(name, data)


@contextmanager
def standing(shelf: Shelf | None) -> Iterator[None]:
    """Have `kept` and `keep` use a shelf."""
    token = _SHELF.set(shelf)
    try:
        yield
    finally:
        _SHELF.reset(token)
