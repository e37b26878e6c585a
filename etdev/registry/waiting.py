"""Waiting: which plugin or backend keeps a lowering waiting, told after a few seconds, and ended
when its time is over.

A time limit ends Python code as Ctrl-C would, at its next step, on the main thread of a process
that has SIGALRM. Elsewhere, and in native code that does not return, nothing can be ended safely:
the listener is told that it is overdue, and what it gives in the end is refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

from attrs import define, field

from etdev.errors import PluginError
from etdev.registry.alarm import Alarm, Overdue, keep_signal_stack
from etdev.schema.stages import Listener

# A hook that takes less is not worth a word.
PATIENCE_S = 3.0
_TICK_S = 0.25


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
                    try:
                        self.listener(f"waiting for {wait.who}: {wait.what}", detail)
                    # It has nobody to raise to here; what is waited for is not at fault.
                    except Exception:
                        return

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
    alarm = Alarm(limit_s) if limit_s is not None and Alarm.possible() else None
    if watch:
        watch.waits.append(wait)
    try:
        with alarm.running() if alarm else nullcontext():
            yield
    except Overdue as overdue:
        if overdue.alarm is not alarm:
            raise
        raise _error(wait) from None
    finally:
        if watch:
            watch.waits.remove(wait)
        keep_signal_stack()
    if wait.overdue:
        raise _error(wait)


def _error(wait: _Wait) -> PluginError:
    return PluginError(
        wait.who,
        f"{wait.what} took more than {wait.limit_s:g} s",
        "give it more time in the plugin's limits, or leave the plugin out",
    )
