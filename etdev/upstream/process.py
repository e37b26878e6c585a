"""Settings of a whole process: Python's garbage collector and torch's logs."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_settled = False


@contextmanager
def settled_heap() -> Iterator[None]:
    """Collect only the objects that are made meanwhile.

    Building hundreds of small graphs sets off collections that walk all of torch and of the
    program each time. A heap that the caller has frozen stays as it is.
    """
    global _settled
    # Python counts what is frozen one by one.
    if _settled or gc.get_freeze_count():
        yield
        return
    gc.freeze()
    _settled = True
    try:
        yield
    finally:
        _settled = False
        gc.unfreeze()


@contextmanager
def loading() -> Iterator[None]:
    """Import torch and ExecuTorch meanwhile, in a process of etdev's own.

    A thousand collections free nothing while that is imported, and take a fifth of the time; later
    ones leave it out. Does nothing where it is imported already.
    """
    global _settled
    if "executorch.exir" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
        _settled = True
        # Python's last collection frees what C++ would otherwise report as leaked.
        atexit.register(gc.unfreeze)


def set_log_level(level: int) -> None:
    """Have all of torch's loggers show records from a level on; imports torch."""
    import torch

    torch._logging.set_logs(all=level)  # type: ignore[attr-defined]
