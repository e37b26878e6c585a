"""Nodes that AOTInductor takes: those of ExecuTorch's AotiPartitioner, by device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import torch
from executorch.backends.aoti.aoti_partitioner import AotiPartitioner
from executorch.exir.backend.utils import get_non_lowered_nodes
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from etdev import Device, Group, KeepWhole, Refusal
from etdev_cuda.kernels import Kernels
from etdev_cuda.soundness import problem_of

_NUMBER = "scalar"
_DTYPE = "dtype"
# What values can have that CudaBackend's runtime holds.
_DTYPES = (
    *(torch.float32, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)
# Kept by program, because every partition asks again.
_devices: WeakKeyDictionary[ExportedProgram, dict[str, Device]] = WeakKeyDictionary()


class Support:
    """The nodes that AotiPartitioner takes and AOTInductor compiles.

    Args:
        backend_id: The backend to partition for.
        max_autotune: Its option; without it, products and convolutions are ATen's kernels.
    """

    def __init__(self, backend_id: str, max_autotune: bool = True) -> None:
        self._partitioner = AotiPartitioner(backend_id, [])
        self._kernels = Kernels(max_autotune)

    def keep_whole(self, program: ExportedProgram) -> KeepWhole:
        """All ATen ops of a program, since AOTInductor decomposes by itself."""
        ops, _ = self._partitioner.ops_to_not_decompose(program)
        # The partitioner collects them in a set.
        return KeepWhole(sorted(ops, key=str))

    def match(
        self, program: ExportedProgram, taken: Mapping[str, str]
    ) -> tuple[list[Group], list[Refusal]]:
        """Match everything that is in no delegate yet.

        A delegate of CudaBackend is called with tensors only, and those of some dtypes. So a node
        that computes a number, such as a dynamic size, or a float64 tensor is in one group with all
        nodes that read it; one that comes from outside or leaves the method keeps its whole group
        out.

        Args:
            program: Edge-dialect program.
            taken: Not looked at; the host drops a group that lost a node.

        Returns:
            Atomic groups in graph order, and the reasons for refusing the other nodes.
        """
        groups, refusals = [], []
        for nodes in _by_inner_values(get_non_lowered_nodes(program.graph)):
            refusal = self._refusal(nodes)
            if refusal is None:
                groups.append(Group(nodes))
            else:
                refusals += [Refusal(node, *refusal) for node in nodes]
        return groups, refusals

    def _refusal(self, nodes: Sequence[Node]) -> tuple[str, str] | None:
        """Code and text of why a group can't be compiled, or None."""
        for node in nodes:
            if why := problem_of(node, self._kernels):
                return "op", why
        crossing = next(_crossing(nodes), None)
        if crossing is None:
            return None
        if _is_number(crossing):
            why = "is a number, and a CUDA delegate is called with tensors only"
            return _NUMBER, f"{crossing.name} {why}"
        dtype = str(crossing.meta["val"].dtype).removeprefix("torch.")
        return _DTYPE, f"{crossing.name} is {dtype}, which CudaBackend's runtime does not have"


def devices(program: ExportedProgram) -> dict[str, Device]:
    """Return the CUDA device of each value that is on one, by node name."""
    if program not in _devices:
        _devices[program] = dict(_on_cuda(program))
    return _devices[program]


def by_device(program: ExportedProgram, groups: Sequence[Group]) -> list[list[Group]]:
    """Return groups by the device of their values; groups on the CPU go with the first device."""
    known = devices(program)
    first = min(known.values(), default=Device("cuda"))
    groups_on: dict[Device, list[Group]] = {first: []}
    for group in groups:
        device = next((known[name] for name in group.nodes if name in known), first)
        groups_on.setdefault(device, []).append(group)
    return [groups_on[device] for device in sorted(groups_on)]


def _on_cuda(program: ExportedProgram) -> Iterator[tuple[str, Device]]:
    for node in program.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor) and value.device.type == "cuda":
                yield node.name, Device("cuda", value.device.index or 0)
                break


def _by_inner_values(nodes: Sequence[Node]) -> Iterable[list[Node]]:
    """Return lists of nodes in graph order that pass inner values to each other."""
    leader = {node: node for node in nodes}

    def find(node: Node) -> Node:
        while leader[node] is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for node in nodes:
        for source in _inner_values_read(node):
            if source in leader:
                leader[find(node)] = find(source)
    lists: dict[Node, list[Node]] = {}
    for node in nodes:
        lists.setdefault(find(node), []).append(node)
    return lists.values()


def _crossing(nodes: Sequence[Node]) -> Iterator[Node]:
    """Inner values that would pass between a delegate of these nodes and the rest of a program."""
    inside = set(nodes)
    for node in nodes:
        yield from (source for source in _inner_values_read(node) if source not in inside)
        if _stays_inside(node) and not inside.issuperset(node.users):
            yield node


def _inner_values_read(node: Node) -> Iterator[Node]:
    return (source for source in node.all_input_nodes if _stays_inside(source))


def _stays_inside(node: Node) -> bool:
    """Return True if a delegate may compute a value, but neither take nor return it."""
    value = node.meta.get("val")
    return _is_number(node) or (isinstance(value, torch.Tensor) and value.dtype not in _DTYPES)


def _is_number(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)
