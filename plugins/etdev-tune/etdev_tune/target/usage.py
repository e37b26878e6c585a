"""Limits on the threads of a program, and what it and the rest of the machine use."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

# In memory before any run: the first touch of new pages takes as long as the calculation, and
# depends on what the process has freed by then.
_SENTINEL = b"\1" * (4 << 20)


def use_threads(count: int) -> None:
    """Set the number of threads of the runtime and its delegates, before either starts one."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(count)
    if hasattr(os, "sched_setaffinity"):
        # OpenVINO, for one, starts a thread for each processor. The last ones are the fast ones
        # where they differ.
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[-count:])
    # torch copies the outputs, and its threads then wait busily on the processors that delegates
    # with threads of their own, such as OpenVINO's, need for the next call.
    import_module("torch").set_num_threads(1)
    library = import_module("executorch.extension.pybindings.portable_lib")
    if reset := getattr(library, "_unsafe_reset_threadpool", None):
        reset(count)


def threads() -> int | None:
    """Return the number of the runtime's threads; None if it doesn't say."""
    library = import_module("executorch.extension.pybindings.portable_lib")
    count = getattr(library, "_threadpool_get_thread_count", None)
    return int(count()) if count else None


def sentinel_ns() -> int:
    """Time a fixed calculation of some milliseconds."""
    start = time.perf_counter_ns()
    hashlib.blake2b(_SENTINEL).digest()
    return time.perf_counter_ns() - start


class Usage:
    """Resources that this process and the rest of the machine use from now on."""

    def __init__(self) -> None:
        # The highest resident memory counts from here: the fork shares its parent's.
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._memory = status_bytes("VmRSS")
        self._start = time.monotonic()
        self._busy = busy_s()
        self._own = time.process_time()

    def since(self) -> dict[str, Any]:
        """Return memory, processors and threads used since then, for the answer."""
        peak = status_bytes("VmHWM")
        wall = time.monotonic() - self._start
        busy = busy_s()
        others = None
        if busy is not None and self._busy is not None and wall > 0:
            others = max(0.0, (busy - self._busy - (time.process_time() - self._own)) / wall)
        memory = None if peak is None or self._memory is None else max(0, peak - self._memory)
        return {"others_cpu": others, "memory_bytes": memory, "threads": threads()}


def busy_s() -> float | None:
    """Return the processor seconds that the machine has used; None where Linux doesn't say."""
    try:
        line = Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def status_bytes(field: str) -> int | None:
    """Return a field of this process' status in bytes; None where Linux doesn't say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next(
        (int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":")), None
    )
