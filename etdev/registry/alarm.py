"""Alarm: a time limit on Python code of the main thread, by SIGALRM; and the stack that signal
handlers run on, which a library may have taken away.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from attrs import define, field

# What was swallowed, as Python swallows what a `__del__` raises, is raised again after that long.
_AGAIN_S = 1.0
# A timer of 0 s would be none.
_SOON_S = 0.001
# Cleaning up must not end halfway: the alarm is not raised in code of these modules.
_SPARED = (__name__, "etdev.registry.waiting", contextlib.__name__)

_Handler = Callable[[int, FrameType | None], object] | int | None


class Overdue(BaseException):
    """Raised in what takes too long; no plugin's `except Exception` may catch it.

    Args:
        alarm: The alarm that went off: of several that are nested, not always the innermost.
    """

    def __init__(self, alarm: Alarm) -> None:
        super().__init__(alarm)
        self.alarm = alarm


# What ends a lowering from outside: whatever else a plugin raises is its own.
INTERRUPTIONS = (KeyboardInterrupt, Overdue)


@define(eq=False)
class Alarm:
    """A time limit; an alarm that the caller had set goes off in time, too.

    Args:
        seconds: When `Overdue` is raised, counted from `running`.
    """

    seconds: float
    _due: float = field(default=math.inf, init=False)
    _handler: _Handler = field(default=None, init=False)
    _handler_due: float = field(default=math.inf, init=False)
    _handler_interval: float = field(default=0.0, init=False)

    @staticmethod
    def possible() -> bool:
        """Whether this thread can be interrupted, and what it is set up for be put back."""
        main = threading.current_thread() is threading.main_thread()
        # None is a handler that is not Python's.
        return (
            main and hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is not None
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Raise `Overdue` in this thread if what is inside takes longer.

        Raises:
            Overdue: It took longer.
        """
        keep_signal_stack()
        # The caller's timer stands still before its handler is replaced, and runs after it is back.
        rest, self._handler_interval = signal.setitimer(signal.ITIMER_REAL, 0)
        start = time.monotonic()
        self._handler_due = start + rest if rest else math.inf
        self._due = start + self.seconds
        self._handler = signal.signal(signal.SIGALRM, self._ring)
        try:
            self._arm()
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._handler)
            if self._handler_due < math.inf:
                rest = max(self._handler_due - time.monotonic(), _SOON_S)
                signal.setitimer(signal.ITIMER_REAL, rest, self._handler_interval)

    def _arm(self) -> None:
        # What Python can't call can't go off before we are done.
        due = min(self._due, self._handler_due) if callable(self._handler) else self._due
        rest = max(due - time.monotonic(), _SOON_S)
        signal.setitimer(signal.ITIMER_REAL, rest, _AGAIN_S)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if frame is not None and frame.f_globals.get("__name__") in _SPARED:
            return
        if now >= self._handler_due and callable(self._handler):
            interval = self._handler_interval
            self._handler_due = now + interval if interval else math.inf
            try:
                self._handler(number, frame)
            finally:
                self._arm()
        if now >= self._due:
            raise Overdue(self)


class _Stack(ctypes.Structure):
    """What sigaltstack(2) calls stack_t, as Linux has it."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


_DISABLE = 2
_PAGE = 4096
_LIBC: Any = ctypes.CDLL(None) if sys.platform == "linux" else None


def keep_signal_stack() -> None:
    """Have this thread's signal handlers run on its own stack if their stack is gone.

    OpenVINO's CPU plugin gives its thread another stack, and unmaps it in the end: if two of them
    end in another order than they began, the thread is left with one that is gone, and the next
    signal ends the process, Ctrl-C included, without a word.
    """
    stack = _Stack()
    if _LIBC is None or _LIBC.sigaltstack(None, ctypes.byref(stack)) or not stack.start:
        return
    page = ctypes.c_void_p(stack.start // _PAGE * _PAGE)
    if _LIBC.mincore(page, ctypes.c_size_t(1), ctypes.byref(ctypes.c_ubyte())):
        _LIBC.sigaltstack(ctypes.byref(_Stack(flags=_DISABLE)), None)
