"""Figures of a .pte, by which two can be compared, or one with a plan."""

from __future__ import annotations

from etdev.pte.artifact import Artifact
from etdev.schema.report.figures import outlined


def figures(artifact: Artifact) -> dict[str, int]:
    """The numbers of a .pte."""
    numbers = {
        "bytes of the file": artifact.size_bytes,
        "bytes of constants": artifact.constants_bytes,
        "bytes of delegates' named data": artifact.named_bytes,
    }
    for method in artifact.methods:
        name = method.name
        payload = sum(delegate.size_bytes for delegate in method.delegates)
        numbers[f"{name}: bytes of delegates' payloads"] = payload
        for kernel, calls in method.kernels.items():
            numbers[f"{name}: calls of {kernel}"] = calls
        for arena in method.arenas:
            key = f"{name}: bytes of memory planned on {arena.device}"
            numbers[key] = numbers.get(key, 0) + arena.size_bytes
    return numbers | outline(artifact)


def outline(artifact: Artifact) -> dict[str, int]:
    """Those of its numbers that its plan has, too."""
    numbers: dict[str, int] = {}
    for method in artifact.methods:
        delegates = ((d.backend_id, str(d.device)) for d in method.delegates if d.calls)
        numbers |= outlined(method.name, delegates, method.host_to_device, method.device_to_host)
    return numbers
