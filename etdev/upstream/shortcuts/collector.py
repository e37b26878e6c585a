"""Fewer collections of garbage; importing this file does not import torch."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from etdev.upstream.shortcuts.switch import Shortcut

COLLECTOR = Shortcut("fewer collections of garbage")
# A full collection waits for this many of the middle generation, each of 7,000 new objects.
_NO_FULL_COLLECTION = 1_000_000


@contextmanager
def loading() -> Iterator[None]:
    """Import torch and ExecuTorch meanwhile, in a process of etdev's own.

    A thousand collections free nothing while that is imported, and take a fifth of the time; later
    ones leave it out. Does nothing where it is imported already.
    """
    if "executorch.exir" in sys.modules or not gc.isenabled() or not COLLECTOR.is_on:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
        # Python's last collection frees what C++ would otherwise report as leaked.
        atexit.register(gc.unfreeze)


@cache
def _is_frozen() -> bool:
    """Return True if the heap was frozen when a process first lowered; to count it takes 0.2 s."""
    return gc.get_freeze_count() > 0


@contextmanager
def without_full_collections() -> Iterator[None]:
    """Put off full collections of garbage; a block inside another one changes nothing.

    Building hundreds of small graphs sets off collections that walk all of torch each time, and the
    graphs made so far, which are still needed: two fifths of the loop's time at 300 partitions.
    """
    frozen, thresholds = _is_frozen(), gc.get_threshold()
    if thresholds[2] == _NO_FULL_COLLECTION or not COLLECTOR.is_on:
        yield
        return
    gc.set_threshold(*thresholds[:2], _NO_FULL_COLLECTION)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen:
            # Freezing begins to count anew, so that no full collection is due at once.
            gc.freeze()
            gc.unfreeze()
