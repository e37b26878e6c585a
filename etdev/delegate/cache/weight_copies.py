"""Copies: the bytes of weights, made in a thread of their own while more is hashed and read."""

from __future__ import annotations

from collections.abc import MutableSequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from attrs import define, field

from etdev.delegate.cache.digests import SEVERAL_THREADS_FROM_BYTES, Digests


@define(eq=False)
class Copies:
    """Weights on their way into the buffers of delegates."""

    _thread: ThreadPoolExecutor | None = None
    _due: list[tuple[MutableSequence[Any], int, Future[bytes]]] = field(factory=list)

    def fill(
        self, buffers: MutableSequence[Any], number: int, digest: str, weights: Digests
    ) -> None:
        """Put the bytes of a weight into a place of a list, at the latest in `settle`.

        Raises:
            ValueError: No weight has the digest.
        """
        if weights.size(digest) < SEVERAL_THREADS_FROM_BYTES:
            buffers[number] = weights.content(digest)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "etdev-copies")
        self._due.append((buffers, number, self._thread.submit(weights.content, digest)))

    def settle(self) -> None:
        """Wait until all are where they belong.

        Raises:
            MemoryError: There is no room for one.
        """
        try:
            for buffers, number, copied in self._due:
                buffers[number] = copied.result()
        finally:
            self._due.clear()
            if self._thread:
                self._thread.shutdown(cancel_futures=True)
                self._thread = None
