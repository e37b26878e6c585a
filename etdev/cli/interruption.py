"""Interruption by Ctrl-C before a command can clean up."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def ending_at_once(text: str = "interrupted") -> Iterator[None]:
    """End the process at Ctrl-C, with a text, instead of raising KeyboardInterrupt.

    Imports of NumPy and torch swallow it, or fail with another error.
    """

    def end(*_: object) -> None:
        # Descriptor 2 is another file while a command runs.
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)
        os._exit(130)

    # Whoever started etdev may ignore Ctrl-C, and threads can't change that.
    known = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not known or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
