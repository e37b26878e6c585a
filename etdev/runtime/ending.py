"""The end of a process that ran programs, and the first error that ExecuTorch logged in it.

It needs nothing but Python, since it also runs on machines without etdev.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable


def ending(code: int) -> str:
    """Say how a process ended, by its exit code as `subprocess` has it."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {int(known): known.name for known in signal.Signals}
    return f"died of {names.get(-code, f'signal {-code}')}"


def first_error(lines: Iterable[str]) -> str:
    """Return the first error among lines of a log; empty without one."""
    # cpuinfo looks for facts that only the processors of phones have, and some backends log that
    # they were loaded successfully.
    logged = (line for line in lines if line.startswith(("[", "E ", "F ")))
    known = (line for line in logged if not ("[cpuinfo" in line or "successfully" in line))
    errors = (line.partition("] ")[2].strip() for line in known)
    return next(filter(None, errors), "")
