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
    # cpuinfo looks for facts that only the processors of phones have.
    logged = (line for line in lines if line.startswith(("[", "E ", "F ")))
    errors = (line.partition("] ")[2].strip() for line in logged if "[cpuinfo" not in line)
    return next(filter(None, errors), "")
