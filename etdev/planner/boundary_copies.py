"""Copies of values between devices, and conversions where partitions meet."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import groupby

from torch.fx import Node

from etdev.graph.method import MethodGraph
from etdev.graph.nodes import delegate_device, describe
from etdev.graph.precision import converted
from etdev.schema.device import CPU, Device
from etdev.schema.partition import Partition
from etdev.schema.pins import PORTABLE
from etdev.schema.tensors import SCALAR, Copy, PrecisionChange


def plan_copies(graph: MethodGraph, partitions: Sequence[Partition]) -> tuple[Copy, ...]:
    """Return the copies a method needs at every run, in graph order.

    A value is copied once to each device that reads it. From one accelerator to another it goes
    through the host, because ExecuTorch copies only between host and device.
    """
    homes = _homes(graph, partitions)
    if all(device.is_cpu for _, device in homes.values()):
        return ()
    inside = {
        (partition.name, constant.name)
        for partition in partitions
        for constant in partition.constants
        if constant.inside
    }
    # The new value of a buffer that a delegate owns never leaves it.
    kept = {c.update for part in partitions for c in part.constants if c.inside and c.mutated}
    copies: list[Copy] = []
    for node in graph.program.graph.nodes:
        if node.name in kept:
            continue
        _, source = homes.get(node.name, ("", CPU))
        targets, value = _reader_devices(node, homes, inside) - {source}, describe(node)
        # A symbolic size is a number in the program, no tensor in memory.
        if value.dtype == SCALAR or not targets:
            continue
        if not source.is_cpu:
            copies.append(Copy(value, source, CPU))
        copies += [Copy(value, CPU, device) for device in sorted(targets - {CPU})]
    return tuple(copies)


def plan_conversions(
    graph: MethodGraph, partitions: Sequence[Partition]
) -> tuple[PrecisionChange, ...]:
    """Return the values that change their precision where they cross a border, in graph order.

    One for each partition that reads a value; constants cross no border at a run.
    """
    homes = {name: home for name, (home, _) in _homes(graph, partitions).items()}
    ends = {"placeholder": "input", "output": "output"}
    conversions: list[PrecisionChange] = []
    for node in graph.program.graph.nodes:
        source = homes.get(node.name, ends.get(node.op, PORTABLE))
        readers: dict[str, list[Node]] = {}
        for user in node.users if node.name not in graph.constants else ():
            readers.setdefault(homes.get(user.name, ends.get(user.op, PORTABLE)), []).append(user)
        readers.pop(source, None)
        for target, users in readers.items():
            read = next(filter(None, map(converted, users)), ())
            if forms := [form for form, _ in groupby([*converted(node), *read])]:
                conversions.append(PrecisionChange(describe(node), source, target, forms))
    return tuple(conversions)


def _homes(graph: MethodGraph, partitions: Sequence[Partition]) -> dict[str, tuple[str, Device]]:
    """Return the delegate of each node that has one, the program's own too, and its memory."""
    homes = {
        name: (partition.name, partition.device.memory)
        for partition in partitions
        for name in partition.nodes
    }
    for node in graph.nodes:
        if node.name in graph.foreign and node.op == "call_function":
            call = node.all_input_nodes[0] if node.target is operator.getitem else node
            homes[node.name] = call.name, delegate_device(call)
    return homes


def _reader_devices(
    node: Node, homes: Mapping[str, tuple[str, Device]], inside: set[tuple[str, str]]
) -> set[Device]:
    own, _ = homes.get(node.name, ("", CPU))
    readers = [homes.get(user.name, ("", CPU)) for user in node.users]
    return {
        device
        for name, device in readers
        if not name or (name != own and (name, node.name) not in inside)
    }
