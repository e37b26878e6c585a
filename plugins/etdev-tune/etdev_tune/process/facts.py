"""Facts about a machine, and what a program and the rest of the machine use of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from importlib import import_module, metadata
from pathlib import Path

# Variables that libraries read their number of threads from.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def facts() -> dict[str, str]:
    """Return what times on this machine depend on, by name."""
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
    lines = {" ".join(line.split()) for line in read("/proc/cpuinfo").splitlines()}
    known = ("model name", "Hardware", "CPU implementer", "CPU part", "flags", "Features")
    facts = sorted(line for line in lines if line.startswith(known))
    digest = hashlib.blake2b("\n".join(facts).encode(), digest_size=4).hexdigest()
    names = [line.partition(": ")[2] for line in facts if line.startswith("model name")]
    return f"{', '.join(names) or platform.processor() or platform.machine()} ({digest})"


def version(name: str) -> str:
    """Return the version of a distribution, or `none`."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def use_threads(count: int) -> None:
    """Set the number of threads of the runtime and its delegates, before either starts one."""
    for name in THREADS:
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


def count_memory() -> int | None:
    """Return the resident memory, above which `peak_bytes` counts; None where Linux doesn't say."""
    # The fork shares its parent's memory, and has its parent's peak until it is cleared.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status_bytes("VmRSS")


def peak_bytes(before: int | None) -> int | None:
    """Return by how much the highest resident memory exceeds the one before; None if unknown."""
    peak = _status_bytes("VmHWM")
    return None if peak is None or before is None else max(0, peak - before)


def _status_bytes(field: str) -> int | None:
    lines = read("/proc/self/status").splitlines()
    found = (int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))
    return next(found, None)
