"""Settings of a whole process: Python's garbage collector and torch's logs."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Import torch and ExecuTorch meanwhile, in a process of etdev's own.

    A thousand collections free nothing while that is imported, and take a fifth of the time; later
    ones leave it out. Does nothing where it is imported already.
    """
    if "executorch.exir" in sys.modules or not gc.isenabled():
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


def set_log_level(level: int) -> None:
    """Have all of torch's loggers show records from a level on; imports torch."""
    import torch

    torch._logging.set_logs(all=level)  # type: ignore[attr-defined]
