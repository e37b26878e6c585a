"""A lock that lets one lowering run at a time in a process, without its caller's modes.

While torch traces a model it changes classes and settings that all threads share, so that two at
once break each other and what comes after. A mode, such as FakeTensorMode or a counter of
operations, would see or change whatever a lowering computes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils._python_dispatch import _disable_current_modes

_turn = threading.RLock()


@contextmanager
def turn() -> Iterator[None]:
    """Wait until no other thread lowers, and have no mode of torch's dispatcher on meanwhile."""
    with _turn, _disable_current_modes():
        yield


def _anew() -> None:
    """Make a new lock in a forked process, whose other threads are gone."""
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_anew)
