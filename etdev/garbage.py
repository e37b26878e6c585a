"""Garbage: Python's collector, kept from the heap that was there before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def settled_heap() -> Iterator[None]:
    """Collect only what is made meanwhile.

    Building thousands of small graphs sets off collections that walk all of torch and of the
    program each time; on 1000 partitions that is a third of the work. Somebody who has frozen the
    heap himself is left alone.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
