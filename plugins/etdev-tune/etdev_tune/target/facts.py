"""Facts about a machine, and what a program and the rest of the machine use of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import time
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

# In memory before any run: the first touch of new pages takes as long as the calculation, and
# depends on what the process has freed by then.
_SENTINEL = b"\1" * (4 << 20)


def facts() -> dict[str, str]:
    """Return what times on this target depend on, by name."""
    runtime = import_module("executorch.runtime").Runtime.get()
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    registry = runtime.backend_registry
    names = registry.registered_backend_names
    return {
        "cpu": cpu(),
        "cores": str(len(allowed) or os.cpu_count()),
        # How much processor time the container may use, as Linux writes it.
        "quota": (read("/sys/fs/cgroup/cpu.max") or "none").strip(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "executorch": version("executorch"),
        "torch": version("torch"),
        "openvino": version("openvino"),
        "backends": ", ".join(sorted(name for name in names if registry.is_available(name))),
    }


def read(path: str) -> str:
    """Return the text of one of Linux' files; empty if it is missing."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def cpu() -> str:
    """Return the processor's model, and a digest of its features, which virtual machines hide."""
    found: dict[str, list[str]] = {}
    for line in read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), []).append(value.strip())
    if not found:
        return platform.processor() or platform.machine()
    names = [
        ", ".join(sorted(set(found[key])))
        for key in ("model name", "Hardware", "CPU implementer", "CPU part")
        if key in found
    ]
    flags = " ".join(found.get("flags") or found.get("Features") or [])
    digest = hashlib.blake2b(" ".join(sorted(set(flags.split()))).encode(), digest_size=4)
    return f"{' '.join(names) or platform.machine()} ({digest.hexdigest()})"


def version(name: str) -> str:
    """Return the version of a distribution, or `none`."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


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
        """Return memory and processors used since then, for the answer; None if unknown."""
        peak, busy, wall = status_bytes("VmHWM"), busy_s(), time.monotonic() - self._start
        others = memory = None
        if busy is not None and self._busy is not None and wall > 0:
            others = max(0.0, (busy - self._busy - (time.process_time() - self._own)) / wall)
        if peak is not None and self._memory is not None:
            memory = max(0, peak - self._memory)
        return {"others_cpu": others, "memory_bytes": memory}


def busy_s() -> float | None:
    """Return the processor seconds that the machine has used; None where Linux doesn't say."""
    if not (text := read("/proc/stat")):
        return None
    line = text.partition("\n")[0].split()[1:9]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def status_bytes(field: str) -> int | None:
    """Return a field of this process' status in bytes; None where Linux doesn't say."""
    lines = read("/proc/self/status").splitlines()
    return next(
        (int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":")), None
    )
