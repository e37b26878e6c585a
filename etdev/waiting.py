"""Waiting: which plugin or backend keeps a lowering waiting, told after a few seconds, and ended
when its time is over.

A time limit ends Python code as Ctrl-C would, at its next step, on the main thread of a process
that has SIGALRM. Elsewhere, and in native code that does not return, nothing can be ended safely:
the listener is told that it is overdue, and what it gives in the end is refused.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from types import FrameType

from attrs import define, field

from etdev.errors import PluginError
from etdev.stages import Listener

# A hook that takes less is not worth a word.
PATIENCE_S = 3.0
_TICK_S = 0.25


class _Overdue(BaseException):
    """Raised in what takes too long; no plugin's `except Exception` may catch it."""


@define(eq=False)
class _Wait:
    """Something that is waited for."""

    who: str
    what: str
    limit_s: float | None
    since: float = field(factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since

    @property
    def overdue(self) -> bool:
        return self.limit_s is not None and self.seconds > self.limit_s


@define(eq=False)
class _Watch:
    """Tells a listener what is waited for; the innermost counts."""

    listener: Listener
    patience_s: float
    waits: list[_Wait] = field(factory=list)
    _done: threading.Event = field(factory=threading.Event)

    def run(self) -> None:
        while not self._done.wait(_TICK_S):
            for wait in self.waits[-1:]:
                if wait.seconds > self.patience_s:
                    over = f", over its limit of {wait.limit_s:g} s" if wait.overdue else ""
                    detail = f"{wait.seconds:.0f} s{over}"
                    self.listener(f"waiting for {wait.who}: {wait.what}", detail)

    def stop(self) -> None:
        self._done.set()


_WATCH: ContextVar[_Watch | None] = ContextVar("etdev.watch", default=None)


@contextmanager
def watched(listener: Listener | None, patience_s: float | None = None) -> Iterator[None]:
    """Tell a listener, from a thread of its own, what keeps the caller waiting.

    Args:
        listener: Told `waiting for PLUGIN: WHAT` and for how long, again and again.
        patience_s: Seconds before it is told; `PATIENCE_S` if None.
    """
    if listener is None or _WATCH.get():
        yield
        return
    watch = _Watch(listener, PATIENCE_S if patience_s is None else patience_s)
    thread = threading.Thread(target=watch.run, name="etdev-watch", daemon=True)
    token = _WATCH.set(watch)
    thread.start()
    try:
        yield
    finally:
        _WATCH.reset(token)
        watch.stop()
        thread.join()


@contextmanager
def waiting_for(who: str, what: str, limit_s: float | None = None) -> Iterator[None]:
    """Wait for something of a plugin's, for so many seconds at most.

    Raises:
        PluginError: It took longer.
    """
    watch, wait = _WATCH.get(), _Wait(who, what, limit_s)
    if watch:
        watch.waits.append(wait)
    try:
        with _alarm(limit_s) if limit_s is not None and _can_end() else nullcontext():
            yield
    except _Overdue:
        raise _error(wait) from None
    finally:
        if watch:
            watch.waits.remove(wait)
    if wait.overdue:
        raise _error(wait)


def _error(wait: _Wait) -> PluginError:
    return PluginError(
        wait.who,
        f"{wait.what} took more than {wait.limit_s:g} s",
        "give it more time in the plugin's limits, or leave the plugin out",
    )


def _can_end() -> bool:
    main = threading.current_thread() is threading.main_thread()
    return main and hasattr(signal, "setitimer")


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise in this thread after some seconds; an alarm of the caller's goes on afterwards."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _Overdue

    handler: Callable[[int, FrameType | None], object] | int | None
    handler = signal.signal(signal.SIGALRM, end)
    start = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        # First of all, as the alarm may go off right here.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            rest = max(left - (time.monotonic() - start), 0.001)
            signal.setitimer(signal.ITIMER_REAL, rest, interval)
