"""What a hook may add to this process and not take away: modules that are imported, threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from etdev.registry.setting import Setting

# A thread that was told to end gets this long.
_END_S = 0.2


def modules_setting() -> Setting:
    """That what is imported by now stays so, whatever else is imported.

    Modules may be put in the place of others, as such do that load when they are first used.
    """
    modules = dict(sys.modules)

    def write(gone: Mapping[str, bool]) -> None:
        for name in modules.keys() - sys.modules.keys() - gone.keys():
            sys.modules[name] = modules[name]

    return Setting(
        "sys.modules",
        lambda: dict.fromkeys(modules.keys() - sys.modules.keys(), True),
        write,
        imported=True,
        slow=True,
        is_quiet=lambda before, after: True,
    )


@contextmanager
def threads_left(names: list[str]) -> Iterator[None]:
    """Add the names of threads that were begun meanwhile and that Python waits for at its end.

    Where others ran before, nobody can tell who began a new one. Those of `concurrent.futures` end
    by themselves.
    """
    before = _awaited()
    yield
    if before <= {threading.current_thread()}:
        begun = _awaited() - before
        for thread in begun:
            thread.join(_END_S)
        names += sorted({thread.name for thread in begun if thread.is_alive()})


def _awaited() -> set[threading.Thread]:
    running = {one for one in threading.enumerate() if not one.daemon}
    return running - _pooled("thread", "_threads_queues") - _pooled("process", "_threads_wakeups")


def _pooled(kind: str, table: str) -> set[Any]:
    """Threads that an executor ends before Python waits for threads."""
    return set(getattr(sys.modules.get(f"concurrent.futures.{kind}"), table, ()))
