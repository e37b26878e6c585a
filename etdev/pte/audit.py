"""Differences between an emitted program and its plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from etdev.pte.artifact import Delegate, MethodArtifact
from etdev.schema.device import CPU, Device
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan, Plan


def differences(
    plan: Plan,
    methods: Sequence[MethodArtifact],
    skipping: Mapping[str, bool] | None = None,
    planned_devices: bool = True,
    upper_bounds: bool = False,
) -> list[str]:
    """Describe both sides of every difference between a program and its plan.

    Delegates are compared by position, since both sides have them in the order of first calls. The
    callers of methods in `skipping` make some copies, so that the program may have fewer. Without
    `planned_devices` memory was not planned by device, and copies don't follow the plan. With
    `upper_bounds` memory was planned for the largest sizes.
    """
    artifacts = {method.name: method for method in methods}
    problems: list[str] = []
    for method in plan.methods:
        if method.method not in artifacts:
            problems.append(f"method {method.method} is planned, the program has none")
            continue
        artifact = artifacts[method.method]
        problems += _delegates(method, artifact)
        problems += _sizes(method, artifact) if upper_bounds and not method.specialised else ()
        if planned_devices:
            fewer = bool(skipping and skipping.get(method.method))
            problems += _copies(method, artifact, fewer)
            problems += [f"method {method.method}: {text}" for text in artifact.misplaced]
    return problems


def _delegates(method: MethodPlan, artifact: MethodArtifact) -> Iterable[str]:
    ours = {partition.name: partition for partition in method.partitions}
    called = [delegate for delegate in artifact.delegates if delegate.calls]
    for index, (name, delegate) in enumerate(zip_longest(method.delegates, called)):
        planned = ours.get(name or "")
        if delegate and name and (planned is None or _same(planned, delegate)):
            continue
        told = name or "none"
        if planned and delegate:
            told = f"{_setup(planned, [planned.device])} ({name})"
        found = _setup(delegate, delegate.devices or [CPU]) if delegate else "none"
        yield f"method {method.method}, delegate {index}: planned {told}, found {found}"


def _sizes(method: MethodPlan, artifact: MethodArtifact) -> Iterable[str]:
    """Describe dynamic values of delegates that are planned for fewer bytes than the plan says.

    A compiler that traces with one size only binds the symbol for the whole program; that its
    plugin knows is said by `Claim.specialises`.
    """
    ours = {partition.name: partition for partition in method.partitions}
    called = [delegate for delegate in artifact.delegates if delegate.calls]
    for name, delegate in zip(method.delegates, called, strict=False):
        partition = ours.get(name)
        border = (*partition.inputs, *partition.outputs) if partition else ()
        for planned, found in zip(border, delegate.values, strict=False):
            if planned.dynamic and planned.size_bytes and found.size_bytes < planned.size_bytes:
                yield (
                    f"method {method.method}, delegate {name}: {planned.name} may have up to "
                    f"{planned.size_bytes} bytes, found memory for {found.size_bytes}"
                )


def _same(partition: Partition, delegate: Delegate) -> bool:
    specs = partition.compile_specs == delegate.compile_specs
    devices = set(delegate.devices) <= {partition.device.memory}
    return partition.backend_id == delegate.backend_id and specs and devices


def _setup(side: Partition | Delegate, devices: Iterable[Device]) -> str:
    place = f"{side.backend_id} on {'/'.join(map(str, devices))}"
    return " ".join([place, *map(str, side.compile_specs)])


def _copies(method: MethodPlan, artifact: MethodArtifact, fewer: bool) -> Iterable[str]:
    down = sum(not copy.source.is_cpu for copy in method.copies)
    up = len(method.copies) - down
    for name, planned, found in (
        ("to a device", up, artifact.host_to_device),
        ("from a device", down, artifact.device_to_host),
    ):
        if found > planned or (found < planned and not fewer):
            yield f"method {method.method}: {planned} copies {name} planned, found {found}"
