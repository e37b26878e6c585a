"""Entries of the cache behind any URL that fsspec knows, shared between machines."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from attrs import frozen

from etdev.errors import CacheError, first_line

T = TypeVar("T")


@frozen(slots=False)
class Remote:
    """Entries behind a URL, such as `s3://bucket/etdev`; an access raises a CacheError in time."""

    url: str
    timeout_s: float

    def __str__(self) -> str:
        return self.url

    def load(self, key: str) -> bytes | None:
        """Return the bytes under a key; None without them."""

        def read() -> bytes | None:
            system, folder = self._place
            try:
                data: bytes = system.cat_file(f"{folder}/{key}")
            except FileNotFoundError:
                return None
            return data

        return self._limited("read", read)

    def store(self, key: str, data: bytes) -> None:
        """Keep bytes under a key."""

        def write() -> None:
            system, folder = self._place
            with contextlib.suppress(NotImplementedError):
                system.makedirs(folder, exist_ok=True)
            # Half a file has another checksum.
            system.pipe_file(f"{folder}/{key}", data)

        self._limited("written", write)

    @cached_property
    def _place(self) -> tuple[Any, str]:
        """The file system and the path in it, connected at the first access."""
        from fsspec.core import url_to_fs

        system, path = url_to_fs(self.url)
        return system, str(path).rstrip("/")

    def _limited(self, done: str, call: Callable[[], T]) -> T:
        """Call in a daemon thread, so that a server that never answers costs only the limit."""
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(call())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work, daemon=True, name="etdev-cache")
        thread.start()
        thread.join(self.timeout_s)
        if results:
            return results[0]
        cure = "check the URL, or leave --cache out"
        if errors:
            what = f"can't be {done}: {first_line(errors[0])}"
            raise CacheError(self.url, what, cure) from errors[0]
        raise CacheError(self.url, f"can't be {done} in {self.timeout_s:g} s", cure)
