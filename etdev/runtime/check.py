"""Checks: what of a .pte would not load or not run on a target, found before it is tried there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from etdev.pte import read
from etdev.pte.artifact import Artifact, MethodArtifact
from etdev.pte.audit import differences
from etdev.pte.ptd import without_data
from etdev.registry.plugin import Plugin
from etdev.schema.device import CPU, Device
from etdev.schema.plan import Plan


def check(
    path: Path,
    targets: Sequence[Device] = (CPU,),
    plan: Plan | None = None,
    plugins: Sequence[Plugin] = (),
    data: Path | None = None,
) -> list[str]:
    """Everything that stands in the way of running a .pte.

    Args:
        path: The .pte.
        targets: Devices of the machine it is for; it has a CPU in any case.
        plan: What it should be; its differences are problems too.
        plugins: Asked which device and which data a delegate's payload really uses.
        data: Its .ptd file; looked for beside the .pte if None.

    Returns:
        A line per problem; none means that it would load and run.

    Raises:
        ArtifactError: The file is no .pte.
    """

    there = tuple(dict.fromkeys((CPU, *targets)))
    facts = read.read(path, plugins)
    problems = [*_in_runtime(facts), *without_data(facts, path, data)]
    for method in facts.methods:
        problems += [f"method {method.name}: {text}" for text in _devices(method, there)]
    if plan is not None:
        problems += differences(plan, facts.methods)
    return list(dict.fromkeys(problems))


def _in_runtime(facts: Artifact) -> Iterable[str]:
    """Backends and operators that this machine's runtime lacks."""
    from executorch.runtime import Runtime

    runtime = Runtime.get()
    operators = runtime.operator_registry.operator_names
    for method in facts.methods:
        for backend_id in dict.fromkeys(d.backend_id for d in method.delegates):
            if not runtime.backend_registry.is_available(backend_id):
                yield f"method {method.name}: the runtime has no backend {backend_id}"
        for name in method.operators:
            if name not in operators:
                yield f"method {method.name}: the runtime has no kernel {name}"


def _devices(method: MethodArtifact, targets: Sequence[Device]) -> Iterable[str]:
    there = ", ".join(str(device) for device in targets)
    for arena in method.arenas:
        if arena.device not in targets:
            yield f"memory is planned on {arena.device}, the target has {there}"
    for index, delegate in enumerate(method.delegates):
        for device in delegate.devices:
            if device not in targets:
                yield f"delegate {index} ({delegate.backend_id}) is on {device}, not on {there}"
        real = delegate.payload_device
        if real is not None and delegate.devices and delegate.devices != (real,):
            labels = "/".join(str(device) for device in delegate.devices)
            name = f"delegate {index} ({delegate.backend_id})"
            yield f"{name} is labelled {labels}, but its payload uses {real}"
    yield from method.misplaced
