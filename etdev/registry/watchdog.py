"""The watchdog: a thread that says which plugin or backend keeps a lowering waiting.

Nothing in this process is ended. A call that took longer than its time limit is refused once it
returns; only worker processes are ended when their time is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from attrs import define, field

from etdev.errors import PluginError
from etdev.schema.stages import Listener

# A call that takes less time is not worth a message.
PATIENCE_S = 3.0
_TICK_S = 0.25


@define(eq=False)
class _Wait:
    """A call of a plugin or a backend that has not returned yet."""

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
class _Watchdog:
    """Tells a listener about the innermost call that has not returned."""

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
                    # There is nobody to raise to here, and the call is not at fault.
                    except Exception:
                        return

    def stop(self) -> None:
        self._done.set()


_WATCHDOG: ContextVar[_Watchdog | None] = ContextVar("etdev.watchdog", default=None)


@contextmanager
def watched(listener: Listener | None, patience_s: float | None = None) -> Iterator[None]:
    """Tell a listener, from a thread of its own, which call keeps the caller waiting.

    Args:
        listener: Told `waiting for PLUGIN: WHAT` and for how long, again and again.
        patience_s: Seconds before it is told; `PATIENCE_S` if None.
    """
    if listener is None or _WATCHDOG.get():
        yield
        return
    watchdog = _Watchdog(listener, PATIENCE_S if patience_s is None else patience_s)
    thread = threading.Thread(target=watchdog.run, name="etdev-watchdog", daemon=True)
    token = _WATCHDOG.set(watchdog)
    thread.start()
    try:
        yield
    finally:
        _WATCHDOG.reset(token)
        watchdog.stop()
        thread.join()


@contextmanager
def waiting_for(who: str, what: str, limit_s: float | None = None) -> Iterator[None]:
    """Have the listener told while a call of a plugin or a backend takes long.

    Raises:
        PluginError: It returned, and took more than `limit_s` seconds.
    """
    watchdog, wait = _WATCHDOG.get(), _Wait(who, what, limit_s)
    if watchdog:
        watchdog.waits.append(wait)
    try:
        yield
    finally:
        if watchdog:
            watchdog.waits.remove(wait)
    if wait.overdue:
        cure = "give it more time in the plugin's limits, or leave the plugin out"
        raise PluginError(who, f"{what} took more than {limit_s:g} s", cure)
