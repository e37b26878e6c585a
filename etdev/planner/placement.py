"""The device of each partition: explicit before derived before the default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve
from executorch.exir.delegate import executorch_call_delegate
from torch.export import ExportedProgram

from etdev.errors import DeviceError, warn_or_raise
from etdev.graph.nodes import delegate_device, graph_modules
from etdev.schema.device import CPU, Device, Probe
from etdev.schema.partition import Assumed, Partition


def refuse_devices_in_branches(program: ExportedProgram, method: str) -> None:
    """Refuse delegates on a device in control flow; ExecuTorch gives them no label and no copy."""
    for branch in graph_modules(program.graph_module)[1:]:
        for node in branch.graph.find_nodes(op="call_function", target=executorch_call_delegate):
            if not (device := delegate_device(node)).is_cpu:
                what = f"{node.name} in a branch of control flow is a delegate on {device}, where"
                what += " ExecuTorch makes no copies to a device"
                raise DeviceError(f"method {method}", what, "lower the branch for the CPU")


def place(
    partition: Partition, pinned: Device | None, answer: Device | Assumed | None, strict: bool
) -> Partition:
    """Return a partition with its device: pinned, derived or assumed by its plugin, or default."""
    if pinned:
        return partition.on(pinned, "pinned")
    if answer is None:
        default = CPU if "cpu" in partition.device_types else Device(partition.device_types[0])
        return partition.on(default, "default")
    if isinstance(answer, Device):
        return partition.on(answer, "derived")
    cure = f'pin it: devices={{"{partition.plugin}": "{answer.device}"}}'
    what = f"had to assume {answer.device} for {partition.where}: {answer.why}"
    warn_or_raise(DeviceError(partition.plugin, what, cure), strict)
    return partition.on(answer.device, "assumed", answer.why)


def check_here(partitions: Iterable[Partition], probed: Probe, strict: bool) -> None:
    """Warn of a plugin's partitions on a device that is not here, if another of its type is."""
    first = {partition.device: partition for partition in reversed([*partitions])}
    for device, partition in sorted(first.items()):
        alike = [str(other) for other in probed.devices if other.type == device.type]
        if not alike or str(device) in alike:
            continue
        what = f"{partition.where} is put on {device}, and this machine has {', '.join(alike)}"
        pinned = f'devices={{"{partition.plugin}": "{alike[0]}"}}'
        cure = f"run it where {device} is, or {pinned} or --device {partition.plugin}={alike[0]}"
        warn_or_raise(DeviceError(partition.plugin, what, cure), strict)


def with_caveats(
    partitions: Sequence[Partition], caveats: Sequence[str], strict: bool
) -> list[Partition]:
    """Warn with the caveats of plugins about devices, each once, and note them in the partitions.

    Under `strict` they are errors, except for a device that the user gave.
    """
    alike: dict[tuple[str, ...], list[Partition]] = {}
    noted = []
    for partition, caveat in zip(partitions, caveats, strict=True):
        notes = filter(None, (partition.device_note, caveat))
        noted.append(evolve(partition, device_note="; ".join(notes)))
        if caveat:
            key = (partition.plugin, str(partition.device), partition.device_source, caveat)
            alike.setdefault(key, []).append(partition)
    for (plugin, device, source, caveat), (first, *others) in alike.items():
        where = f"{first.where} and {len(others)} more are" if others else f"{first.where} is"
        what = f"{where} put on {device} ({source}), but {caveat}"
        refused = strict and source != "pinned"
        pin = f'or pin the device, devices={{"{plugin}": "{device}"}}, or lower without strict'
        warn_or_raise(DeviceError(plugin, what, pin if refused else ""), refused)
    return noted
