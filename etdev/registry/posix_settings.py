"""Settings that the system has for this process: descriptors, limits, timers, signals."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

from etdev.registry.setting import Setting

# Of these a hook might be short later: open files, their size, memory, time.
_LIMITS = ("RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_AS", "RLIMIT_CPU")


def posix_settings() -> tuple[Setting, ...]:
    """All of them; none on Windows."""
    # Written so that mypy, which knows the platform, looks at the rest.
    if sys.platform == "win32":
        return ()
    import resource

    numbers = {name: getattr(resource, name) for name in _LIMITS}

    def limit(values: Mapping[str, tuple[int, int]]) -> None:
        for name, value in values.items():
            # A hard limit that was lowered stays so.
            with suppress(ValueError, OSError):
                resource.setrlimit(numbers[name], value)

    return (
        # Nothing can put back a descriptor that is closed.
        Setting("the files of the standard streams", _streams, lambda _: None, long=True),
        Setting(
            "the limits of this process",
            lambda: {name: resource.getrlimit(number) for name, number in numbers.items()},
            limit,
            imported=True,
            slow=True,
        ),
        Setting(
            "the timer of this process",
            lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0,
            _stop_timer,
            long=True,
        ),
        Setting(
            "the signals that are blocked",
            lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
            lambda mask: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
            long=True,
            slow=True,
        ),
    )


def _stop_timer(armed: bool) -> None:
    # One that the hook stopped can't be started again: nobody knows when it was to ring.
    if not armed:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _streams() -> tuple[tuple[int, int] | None, ...]:
    """Which files the descriptors of the standard streams are of."""
    return tuple(map(_file, range(3)))


def _file(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    # It is closed.
    except OSError:
        return None
    return status.st_dev, status.st_ino
