"""Checks that a .pte loads and runs on a target, made without that target."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from etdev.errors import DeviceError
from etdev.graph.nodes import target_device
from etdev.pte.artifact import Artifact, Delegate, MethodArtifact
from etdev.pte.audit import differences
from etdev.pte.ptd import without_data
from etdev.pte.read import read
from etdev.registry.plugin import Plugin
from etdev.runtime.kernels import missing
from etdev.schema.device import CPU, Device
from etdev.schema.plan import Plan


def check(
    path: str | os.PathLike[str],
    targets: Sequence[Device] = (CPU,),
    plan: Plan | None = None,
    plugins: Sequence[Plugin] = (),
    data: str | os.PathLike[str] | None = None,
) -> list[str]:
    """List the problems that keep a .pte from running.

    Args:
        path: The .pte.
        targets: Devices of the target machine; its CPU is always one of them.
        plan: The plan it should match; each difference from it is a problem.
        plugins: Plugins that can read which device and data a delegate's payload uses.
        data: Its .ptd file; None searches next to the .pte.

    Returns:
        A line per problem; none if it would load and run.

    Raises:
        ArtifactError: The file is not a .pte.
    """
    available = tuple(dict.fromkeys((CPU, *targets)))
    file, outside = Path(path), None if data is None else Path(data)
    artifact = read(file, plugins)
    problems = [*_missing_in_runtime(artifact), *without_data(artifact, file, outside)]
    for method in artifact.methods:
        problems += [f"method {method.name}: {text}" for text in _misplaced(method, available)]
    if plan is not None:
        problems += differences(plan, artifact.methods)
    return list(dict.fromkeys(problems))


def notes(path: str | os.PathLike[str], plugins: Sequence[Plugin] = ()) -> list[str]:
    """List facts that users should know before they load a .pte, though they are no problems.

    Each delegate that runs native code of the file has a line, and so has memory that Python's
    loaders plan differently.
    """
    artifact = read(Path(path), plugins)
    lines, native = [], set(artifact.native)
    for method in artifact.methods:
        for index, delegate in enumerate(method.delegates):
            keys = [key for key in delegate.data if key in artifact.native]
            native.difference_update(keys)
            places = [*(["its payload"] if delegate.native else []), *keys]
            if places:
                name = f"method {method.name}: delegate {index} ({delegate.backend_id})"
                lines.append(f"{name} runs native code of this file, in {', '.join(places)}")
        devices = sorted({arena.device for arena in method.arenas if not arena.device.is_cpu})
        if devices:
            lines.append(
                f"method {method.name}: memory is planned on {', '.join(map(str, devices))}; "
                "executorch.runtime, the Python loader that etdev run uses, plans all memory on "
                "the host, so load it with ExecuTorch's Module"
            )
    lines += [
        f"{key} is a shared library, and no plugin here knows whose" for key in sorted(native)
    ]
    return lines


def _missing_in_runtime(artifact: Artifact) -> Iterable[str]:
    """Name the backends and kernels that this machine's runtime lacks."""
    for method in artifact.methods:
        backends, kernels = missing(method)
        for backend_id in backends:
            cure = "run it with one that is built with it, or lower without its plugin"
            yield f"method {method.name}: the runtime has no backend {backend_id}; {cure}"
        for name in kernels:
            cure = "run it with one that has it, or give the op to a plugin"
            yield f"method {method.name}: the runtime has no kernel {name}; {cure}"


def _misplaced(method: MethodArtifact, targets: Sequence[Device]) -> Iterable[str]:
    """Name memory and delegates on devices that the target lacks, and labels that are wrong."""
    devices = ", ".join(str(device) for device in targets)
    cure = f"name it, as in --target {devices.replace(' ', '')},{{0}}, or lower for one of these"
    for arena in method.arenas:
        if arena.device not in targets:
            what = f"memory is planned on {arena.device}, the target has {devices}"
            yield f"{what}; {cure.format(arena.device)}"
    for index, delegate in enumerate(method.delegates):
        name = f"delegate {index} ({delegate.backend_id})"
        for device in delegate.devices:
            if device not in targets:
                yield f"{name} is on {device}, not on {devices}; {cure.format(device)}"
        yield from (f"{name} {text}" for text in _contradictions(delegate))
    yield from method.misplaced


def _contradictions(delegate: Delegate) -> Iterable[str]:
    """Name contradictions between a delegate's payload, its compile specs and its device labels."""
    if delegate.fault:
        yield delegate.fault
    labels = "/".join(str(device) for device in delegate.devices)
    real = delegate.payload_device
    if real is not None and delegate.devices and delegate.devices != (real,):
        yield f"is labelled {labels}, but its payload uses {real}"
    try:
        wanted = target_device("", delegate.compile_specs)
    except DeviceError as error:
        yield f"has a target_device spec that can't be kept: {error.what}"
        return
    if wanted is not None and delegate.devices and delegate.devices != (wanted,):
        yield f"is labelled {labels}, but its target_device spec is {wanted}"
