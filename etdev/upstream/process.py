"""Settings of a whole process: Python's garbage collector and torch's logs."""

from __future__ import annotations

import atexit
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_settling = 0
_frozen = False


@contextmanager
def settled_heap() -> Iterator[None]:
    """Collect only the objects that are made meanwhile.

    Building thousands of small graphs sets off collections that walk all of torch and of the
    program each time; on 1000 partitions that is a third of the work. A heap that the caller has
    frozen stays as it is.
    """
    global _settling, _frozen
    with _lock:
        # Python counts what is frozen one by one, so that is asked once.
        if not _settling and not gc.get_freeze_count():
            gc.freeze()
            _frozen = True
        _settling += 1
    try:
        yield
    finally:
        with _lock:
            _settling -= 1
            if not _settling and _frozen:
                gc.unfreeze()
                _frozen = False


@contextmanager
def loading() -> Iterator[None]:
    """Import torch and ExecuTorch meanwhile, in a process of etdev's own.

    A thousand collections free nothing while that is imported, and take a fifth of the time; later
    ones leave it out. Does nothing where it is imported already.
    """
    global _settling
    if "executorch.exir" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        with _lock:
            gc.freeze()
            _settling += 1
        # Python's last collection frees what C++ would otherwise report as leaked.
        atexit.register(gc.unfreeze)


def set_log_level(level: int) -> None:
    """Have all of torch's loggers show records from a level on; imports torch."""
    import torch

    torch._logging.set_logs(all=level)  # type: ignore[attr-defined]
