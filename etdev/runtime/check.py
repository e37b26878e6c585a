"""Checks that a .pte loads on this machine, or on a target that is not here."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from etdev.errors import ArtifactError, DeviceError, EtdevError
from etdev.pte.artifact import Artifact, Delegate, MethodArtifact
from etdev.pte.audit import differences
from etdev.pte.digest import compare, gaps
from etdev.pte.ptd import find, outside
from etdev.pte.read import read
from etdev.registry.plugin import Plugin
from etdev.runtime.kernels import kernel_modules
from etdev.runtime.runners import PYTHON, Runner, runner_of
from etdev.runtime.worker import Program
from etdev.schema.device import CPU, Device
from etdev.schema.partition import target_device
from etdev.schema.plan import Plan
from etdev.schema.target import Target
from etdev.schema.tensors import loading
from etdev.schema.wording import size


def check(  # noqa: PLR0913 (public, and called with keywords)
    path: str | os.PathLike[str],
    targets: Sequence[Device] | None = None,
    plan: Plan | None = None,
    plugins: Sequence[Plugin] = (),
    data: str | os.PathLike[str] | None = None,
    place: Target | None = None,
) -> list[str]:
    """List the problems that keep a .pte from loading.

    If the file shows none, the runner for its delegates loads its methods, in another process: this
    one doesn't import torch.

    Args:
        path: The .pte.
        targets: Devices of the target machine; its CPU is always one of them. None is this machine,
            where a method that `unloaded` names is a problem, too.
        plan: The plan it should match; each difference from it is a problem.
        plugins: Plugins that can read which device and data a delegate's payload uses, and that
            name the runner for their delegates.
        data: Its .ptd file; None searches next to the .pte.
        place: Where it is loaded; None is this machine.
    """
    available = None if targets is None else tuple(dict.fromkeys((CPU, *targets)))
    devices = (CPU, *place.devices) if place and available is None else available
    file, beside, problems = Path(path), None, list[str]()
    artifact = read(file, plugins)
    try:
        beside = find(artifact, file, None if data is None else Path(data))
        compare(file, beside)
    except ArtifactError as error:
        problems.append(f"it {error.what}; {error.cure}" if error.who == str(file) else str(error))
    if not artifact.methods:
        problems.append("it has no methods")
    for method in artifact.methods:
        problems += [f"method {method.name}: {text}" for text in _misplaced(method, devices)]
    if (limit := place and place.memory_bytes) and (needed := _memory(artifact)) > limit:
        problems.append(f"it takes {size(needed)} of memory, and the target has {size(limit)}")
    if plan is not None:
        problems += differences(plan, artifact.methods)
    if problems:
        return list(dict.fromkeys(problems))
    # Another machine has the runtime of its devices, which this one need not have.
    there = {} if available is None else unloaded(artifact, here=False)
    try:
        runner = runner_of(artifact, plugins, target=place)
    except EtdevError as error:
        # Such as a runtime that is not installed.
        if not there:
            return [str(error)]
        runner = PYTHON
    lacking = [*_missing_in_runtime(artifact, runner, there)]
    return [*dict.fromkeys(lacking or _refused(artifact, file, beside, available is None, runner))]


def unloaded(artifact: Artifact, here: bool) -> dict[str, str]:
    """Return why `check` doesn't load methods, by method: devices elsewhere, or native code."""
    reasons = {}
    for method in artifact.methods:
        used = {d for each in method.delegates for d in (each.device, *each.devices)}
        used.update(arena.device for arena in method.arenas)
        away = sorted(str(device) for device in used if not device.is_cpu)
        if artifact.native or any(delegate.native for delegate in method.delegates):
            reasons[method.name] = "loading it would run native code of the file"
        elif away and not here:
            backends = " and ".join(_on_devices(method))
            what = f"it needs {', '.join(away)}"
            reasons[method.name] = f"{what}; load it there, with a runtime that has {backends}"
    return reasons


def _on_devices(method: MethodArtifact) -> list[str]:
    """Return the backends of a method that run on other devices than the CPU."""
    return [*dict.fromkeys(d.backend_id for d in method.delegates if not d.device.is_cpu)]


def notes(path: str | os.PathLike[str], plugins: Sequence[Plugin] = ()) -> list[str]:
    """List facts that users should know before they load a .pte, though they are no problems.

    Each delegate that runs native code of the file has a line, and so have memory that Python's
    loaders plan differently, and kernels that etdev loads and ExecuTorch's runtime does not.
    """
    artifact = read(Path(path), plugins)
    lines, native = gaps(Path(path), bool(outside(artifact))), set(artifact.native)
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
                f"method {method.name}: memory is planned on {', '.join(map(str, devices))}; its "
                "loader has to allocate it there: ExecuTorch's Module, or executorch.runtime from "
                "1.5 on in a build with a backend for the device"
            )
        lines += [f"method {method.name}: {text}" for text in _streams(method)]
        lines += [f"method {method.name}: load {m} for its kernels" for m in kernel_modules(method)]
    lines += loading(artifact.state)
    if not artifact.shares_state and len(artifact.methods) > 1:
        lines.append(
            "the methods of one Program in Python overwrite each other's state and memory: load it "
            "with executorch.runtime once for each method, or with ExecuTorch's Module"
        )
    lines += [
        f"{key} is a shared library, and no plugin here knows whose" for key in sorted(native)
    ]
    return lines


def _streams(method: MethodArtifact) -> Iterable[str]:
    """Yield a line for each CUDA device on which several backends run."""
    backends: dict[Device, dict[str, None]] = {}
    for delegate in method.delegates:
        if delegate.device.type == "cuda":
            backends.setdefault(delegate.device, {})[delegate.backend_id] = None
    for device, names in backends.items():
        if len(names) > 1:
            yield (
                f"{' and '.join(names)} run on {device}, each on a stream of its own: run them on "
                "one, in C++ by a CallerStreamGuard, or values between them may be read too early"
            )


def _memory(artifact: Artifact) -> int:
    """Return the bytes of the file and of the memory that is planned for its methods."""
    arenas = (arena for method in artifact.methods for arena in method.arenas)
    return artifact.size_bytes + sum(a.size_bytes for a in arenas if a.device.is_cpu)


def _missing_in_runtime(artifact: Artifact, runner: Runner, there: Container[str]) -> Iterable[str]:
    """Name the backends and kernels that the runner lacks; not those of devices elsewhere."""
    for method in artifact.methods:
        backends, kernels = runner.missing(method)
        elsewhere = _on_devices(method) if method.name in there else []
        for backend_id in (backend for backend in backends if backend not in elsewhere):
            cure = "run it with one that is built with it, or lower without its plugin"
            yield f"method {method.name}: the runtime has no backend {backend_id}; {cure}"
        for name in kernels:
            cure = "run it with one that has it, or give the op to a plugin"
            dtypes = ", ".join(method.dtypes.get(name, ()))
            kernel = f"{name} ({dtypes})" if dtypes else name
            yield f"method {method.name}: the runtime has no kernel {kernel}; {cure}"


def _refused(
    artifact: Artifact, path: Path, data: Path | None, here: bool, runner: Runner
) -> Iterable[str]:
    """Name the methods that the runner doesn't load, or must not."""
    skipped = unloaded(artifact, here)
    for method in artifact.methods:
        if method.name not in skipped:
            failure = runner.load(Program.of(path, [method], data), method.name).failure
        else:
            cure = "name the target's devices to check the rest"
            failure = f"was not loaded: {skipped[method.name]}; {cure}" if here else None
        if failure:
            yield f"method {method.name}: {failure}"


def _misplaced(method: MethodArtifact, targets: Sequence[Device] | None) -> Iterable[str]:
    """Name memory and delegates on devices that the target lacks, and labels that are wrong.

    Whether this machine, which is None, has a device is seen when the method is loaded.
    """
    devices = ", ".join(str(device) for device in targets or ())
    cure = f"name it, as in --device {devices.replace(' ', '')},{{0}}, or lower for one of these"
    for arena in method.arenas:
        if targets and arena.device not in targets:
            what = f"memory is planned on {arena.device}, the target has {devices}"
            yield f"{what}; {cure.format(arena.device)}"
    for index, delegate in enumerate(method.delegates):
        name = f"delegate {index} ({delegate.backend_id})"
        for device in dict.fromkeys((*delegate.devices, delegate.device)):
            if targets and device not in targets:
                yield f"{name} is on {device}, not on {devices}; {cure.format(device)}"
        yield from (f"{name} {text}" for text in _contradictions(delegate))
    yield from method.misplaced


def _contradictions(delegate: Delegate) -> Iterable[str]:
    """Name contradictions between a delegate's payload, its compile specs and its device labels."""
    if delegate.fault:
        yield delegate.fault
    labels = "/".join(str(device) for device in delegate.devices)
    real = delegate.payload_device
    if real is not None and delegate.devices and delegate.devices != (real.memory,):
        yield f"is labelled {labels}, but its payload uses {real}"
    elif real is not None and real != real.memory and real != delegate.device:
        yield f"is for {delegate.device}, but its payload uses {real}"
    try:
        wanted = target_device("", delegate.compile_specs)
    except DeviceError as error:
        yield f"has a target_device spec that can't be kept: {error.what}"
        return
    if wanted is not None and delegate.devices and delegate.devices != (wanted,):
        yield f"is labelled {labels}, but its target_device spec is {wanted}"
