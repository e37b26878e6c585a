"""A thread that reports which plugin or backend keeps a lowering waiting.

Nothing in this process is ended. A call that took longer than its time limit is refused once it
returns; only worker processes are ended when their time is over.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from attrs import define, field

from etdev.errors import EtdevWarning, PluginError
from etdev.schema.stopwatch import Listener

# Seconds before a call is reported to a listener.
PATIENCE_S = 3.0
# Seconds before a warning names a call without a limit, by the setting that would limit it.
HANGS_S = {"hook_timeout_s": 60.0, "compile_timeout_s": 600.0}
_TICK_S = 0.25


@define(eq=False)
class _Wait:
    """A call of a plugin or a backend that has not returned yet."""

    who: str
    what: str
    limit_s: float | None
    setting: str
    since: float = field(factory=time.monotonic)

    def seconds(self) -> float:
        return time.monotonic() - self.since

    def hangs(self) -> bool:
        return self.limit_s is None and self.seconds() > HANGS_S[self.setting]

    def is_overdue(self) -> bool:
        return self.limit_s is not None and self.seconds() > self.limit_s


# The calls that have not returned, innermost last; None where nobody watches.
_WAITS: ContextVar[list[_Wait] | None] = ContextVar("etdev.waits", default=None)


@contextmanager
def watched(listener: Listener | None) -> Iterator[None]:
    """Report from a thread which call keeps the caller waiting, and for how long.

    A call that seems to hang is named in a warning, too, whether or not there is a listener.
    """
    if _WAITS.get() is not None:
        yield
        return
    waits: list[_Wait] = []
    done, name = threading.Event(), "etdev-watchdog"
    arguments = (listener, waits, done)
    thread = threading.Thread(target=_report, args=arguments, name=name, daemon=True)
    token = _WAITS.set(waits)
    thread.start()
    try:
        yield
    finally:
        _WAITS.reset(token)
        done.set()
        thread.join()


def _report(listener: Listener | None, waits: list[_Wait], done: threading.Event) -> None:
    """Report the innermost call again and again, until `done` is set."""
    named: list[_Wait] = []
    while not done.wait(_TICK_S):
        for wait in waits[-1:]:
            passed_s = wait.seconds()
            if wait.hangs() and wait not in named:
                named.append(wait)
                what = f"{wait.what} has not returned for {passed_s:.0f} s"
                cure = f"{wait.setting} in the plugin's limits would refuse it"
                warnings.warn(f"{wait.who}: {what}; {cure}", EtdevWarning, stacklevel=1)
            if listener and passed_s > PATIENCE_S:
                over = f", over its limit of {wait.limit_s:g} s" if wait.is_overdue() else ""
                try:
                    listener(f"waiting for {wait.who}: {wait.what}", f"{passed_s:.0f} s{over}")
                # The call is not at fault, and a thread has no caller to raise to.
                except Exception:
                    return


@contextmanager
def waiting_for(
    who: str, what: str, limit_s: float | None = None, setting: str = "hook_timeout_s"
) -> Iterator[None]:
    """Report a slow call, and refuse one that took more than `limit_s`.

    That is the plugin's limit of the name `setting`.
    """
    waits, wait = _WAITS.get(), _Wait(who, what, limit_s, setting)
    if waits is not None:
        waits.append(wait)
    try:
        yield
    finally:
        if waits is not None:
            waits.remove(wait)
    if wait.is_overdue():
        cure = f"raise {setting} in the plugin's limits, or leave the plugin out"
        raise PluginError(who, f"{what} took more than {limit_s:g} s", cure)
