"""Checks: what in a .pte would not load or not run on a target, found without that target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from etdev.pte.artifact import Artifact, MethodArtifact
from etdev.pte.audit import differences
from etdev.pte.ptd import without_data
from etdev.pte.read import read
from etdev.registry.plugin import Plugin
from etdev.runtime.kernels import missing
from etdev.schema.device import CPU, Device
from etdev.schema.plan import Plan


def check(
    path: Path,
    targets: Sequence[Device] = (CPU,),
    plan: Plan | None = None,
    plugins: Sequence[Plugin] = (),
    data: Path | None = None,
) -> list[str]:
    """List everything that keeps a .pte from running.

    Args:
        path: The .pte.
        targets: Devices of the target machine; its CPU is always one of them.
        plan: The plan it should match; differences from it are problems too.
        plugins: Asked which device and which data a delegate's payload really uses.
        data: Its .ptd file; looked for beside the .pte if None.

    Returns:
        A line per problem; an empty list means that it would load and run.

    Raises:
        ArtifactError: The file is not a .pte.
    """
    available = tuple(dict.fromkeys((CPU, *targets)))
    artifact = read(path, plugins)
    problems = [*_missing_in_runtime(artifact), *without_data(artifact, path, data)]
    for method in artifact.methods:
        problems += [f"method {method.name}: {text}" for text in _misplaced(method, available)]
    if plan is not None:
        problems += differences(plan, artifact.methods)
    return list(dict.fromkeys(problems))


def _missing_in_runtime(artifact: Artifact) -> Iterable[str]:
    """Name the backends and kernels that this machine's runtime lacks."""
    for method in artifact.methods:
        lacks = missing(method)
        for backend_id in lacks.backends:
            yield f"method {method.name}: the runtime has no backend {backend_id}"
        for name in lacks.kernels:
            yield f"method {method.name}: the runtime has no kernel {name}"


def _misplaced(method: MethodArtifact, targets: Sequence[Device]) -> Iterable[str]:
    """Name memory and delegates on devices that the target lacks, and labels that are wrong."""
    devices = ", ".join(str(device) for device in targets)
    for arena in method.arenas:
        if arena.device not in targets:
            yield f"memory is planned on {arena.device}, the target has {devices}"
    for index, delegate in enumerate(method.delegates):
        name = f"delegate {index} ({delegate.backend_id})"
        for device in delegate.devices:
            if device not in targets:
                yield f"{name} is on {device}, not on {devices}"
        real = delegate.payload_device
        if real is not None and delegate.devices and delegate.devices != (real,):
            labels = "/".join(str(device) for device in delegate.devices)
            yield f"{name} is labelled {labels}, but its payload uses {real}"
    yield from method.misplaced
