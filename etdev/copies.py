"""Copies between devices: which values have to move, each once per device that needs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch.fx import Node

from etdev.device import CPU, Device
from etdev.graph import MethodGraph, describe
from etdev.plan import Copy, Partition


def plan_copies(graph: MethodGraph, partitions: Sequence[Partition]) -> tuple[Copy, ...]:
    """The copies a method needs at every run, in graph order.

    A value is copied once to each device that reads it. From one accelerator to another it goes
    through the host, because ExecuTorch copies only between host and device.

    Args:
        graph: The method.
        partitions: Its partitions, devices resolved.
    """
    if all(partition.device.is_cpu for partition in partitions):
        return ()
    home = {name: partition for partition in partitions for name in partition.nodes}
    inside = {
        (partition.name, constant.name)
        for partition in partitions
        for constant in partition.constants
        if constant.inside
    }
    found: list[Copy] = []
    for node in graph.program.graph.nodes:
        owner = home.get(node.name)
        source = owner.device if owner else CPU
        readers = _reader_devices(node, owner, home, inside)
        found += _copies(node, source, readers - {source})
    return tuple(found)


def _reader_devices(
    node: Node,
    owner: Partition | None,
    home: dict[str, Partition],
    inside: set[tuple[str, str]],
) -> set[Device]:
    devices = set()
    for user in node.users:
        reader = home.get(user.name)
        if reader is None:
            devices.add(CPU)
        elif reader is not owner and (reader.name, node.name) not in inside:
            devices.add(reader.device)
    return devices


def _copies(node: Node, source: Device, targets: Iterable[Device]) -> list[Copy]:
    away = sorted(device for device in targets if not device.is_cpu)
    value = describe(node)
    # A symbolic size is a number in the program, no tensor in memory.
    if not value.is_tensor:
        return []
    down = [] if source.is_cpu or not targets else [Copy(value, source, CPU)]
    return [*down, *(Copy(value, CPU, device) for device in away)]
