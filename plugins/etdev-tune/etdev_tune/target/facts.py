"""Facts about the machine that times depend on."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib import import_module, metadata
from pathlib import Path


def facts() -> dict[str, str]:
    """Return what times on this target depend on, by name."""
    runtime = import_module("executorch.runtime").Runtime.get()
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    registry = runtime.backend_registry
    names = registry.registered_backend_names
    return {
        "cpu": cpu(),
        "cores": str(len(allowed) or os.cpu_count()),
        "quota": quota(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "executorch": version("executorch"),
        "torch": version("torch"),
        "openvino": version("openvino"),
        "backends": ", ".join(sorted(name for name in names if registry.is_available(name))),
    }


def cpu() -> str:
    """Return the processor's model, and a digest of its features, which virtual machines hide."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), []).append(value.strip())
    names = [
        ", ".join(sorted(set(found[key])))
        for key in ("model name", "Hardware", "CPU implementer", "CPU part")
        if key in found
    ]
    flags = " ".join(found.get("flags") or found.get("Features") or [])
    digest = hashlib.blake2b(" ".join(sorted(set(flags.split()))).encode(), digest_size=4)
    return f"{' '.join(names) or platform.machine()} ({digest.hexdigest()})"


def quota() -> str:
    """Return how much processor time the container may use, as Linux writes it, or `none`."""
    try:
        return Path("/sys/fs/cgroup/cpu.max").read_text().strip()
    except OSError:
        return "none"


def version(name: str) -> str:
    """Return the version of a distribution, or `none`."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
