"""ExecuTorch's AotiPartitioner as rules: what it keeps whole, what it takes, and from where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from executorch.backends.aoti.aoti_partitioner import AotiPartitioner
from executorch.exir.backend.utils import get_non_lowered_nodes
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from etdev import Device, Refusal

_NUMBER = "scalar"
# By program, because it is asked for once per partition.
_devices: WeakKeyDictionary[ExportedProgram, dict[str, Device]] = WeakKeyDictionary()


def ops_to_keep(program: ExportedProgram, backend_id: str) -> list[Any]:
    """ATen ops that AOTInductor wants whole: all of them."""
    ops, _ = AotiPartitioner(backend_id, []).ops_to_not_decompose(program)
    # It collects them in a set.
    return sorted(ops, key=str)


def groups(program: ExportedProgram) -> tuple[list[list[Node]], list[Refusal]]:
    """What AotiPartitioner takes, everything that is in no delegate yet, in atomic groups.

    A delegate of CudaBackend is called with tensors only. So whoever computes a number, such as a
    dynamic size, is in one group with all who read it; a number that comes from outside or leaves
    the method keeps its whole group out.
    """
    free = get_non_lowered_nodes(program.graph)
    found, refusals = [], []
    for group in _by_numbers(free):
        crossing = next(_crossing(group), None)
        if crossing is None:
            found.append(group)
        else:
            text = f"{crossing.name} is a number, and a CUDA delegate is called with tensors only"
            refusals += [Refusal(node, _NUMBER, text) for node in group]
    return found, refusals


def devices(program: ExportedProgram) -> dict[str, Device]:
    """The CUDA device of each value that is on one, by node name."""
    if program not in _devices:
        _devices[program] = dict(_on_cuda(program))
    return _devices[program]


def by_device(
    program: ExportedProgram, groups: Sequence[Sequence[Node]]
) -> list[list[Sequence[Node]]]:
    """Groups apart by the device of their values; those on the CPU go with the first."""
    known = devices(program)
    first = min(known.values(), default=Device("cuda"))
    apart: dict[Device, list[Sequence[Node]]] = {first: []}
    for group in groups:
        device = next((known[node.name] for node in group if node.name in known), first)
        apart.setdefault(device, []).append(group)
    return [apart[device] for device in sorted(apart)]


def _on_cuda(program: ExportedProgram) -> Iterator[tuple[str, Device]]:
    for node in program.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor) and value.device.type == "cuda":
                yield node.name, Device("cuda", value.device.index or 0)
                break


def _by_numbers(nodes: Sequence[Node]) -> Iterable[list[Node]]:
    """Nodes in graph order; those between which a number passes are together."""
    leader = {node: node for node in nodes}

    def find(node: Node) -> Node:
        while leader[node] is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for node in nodes:
        for source in _numbers_read(node):
            if source in leader:
                leader[find(node)] = find(source)
    together: dict[Node, list[Node]] = {}
    for node in nodes:
        together.setdefault(find(node), []).append(node)
    return together.values()


def _crossing(group: Sequence[Node]) -> Iterator[Node]:
    """Numbers that would pass between a delegate of a group and the rest of the program."""
    inside = set(group)
    for node in group:
        yield from (source for source in _numbers_read(node) if source not in inside)
        if _is_number(node) and not inside.issuperset(node.users):
            yield node


def _numbers_read(node: Node) -> Iterator[Node]:
    return (source for source in node.all_input_nodes if _is_number(source))


def _is_number(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)
