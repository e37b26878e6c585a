"""What AOTInductor takes: what ExecuTorch's AotiPartitioner would, and where its values are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import torch
from executorch.backends.aoti.aoti_partitioner import AotiPartitioner
from executorch.exir.backend.utils import get_non_lowered_nodes
from torch._inductor.decomposition import decompositions
from torch._inductor.lowering import lowerings
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from etdev import Device, Group, KeepWhole, Refusal
from etdev.graph import aten_op, op_name

_NUMBER = "scalar"
# ATen and its like, and the kernels that come with CudaBackend.
_NAMESPACES = (
    *("aten", "prims", "dim_order_ops", "quantized_decomposed"),
    *("executorch_cuda", "triton"),
)
# Kept by program, because every partition asks again.
_devices: WeakKeyDictionary[ExportedProgram, dict[str, Device]] = WeakKeyDictionary()


class Support:
    """What AotiPartitioner takes.

    Args:
        backend_id: The backend to partition for.
    """

    def __init__(self, backend_id: str) -> None:
        self._partitioner = AotiPartitioner(backend_id, [])

    def keep_whole(self, program: ExportedProgram) -> KeepWhole:
        """All ATen ops of a program, since AOTInductor decomposes by itself."""
        ops, _ = self._partitioner.ops_to_not_decompose(program)
        # The partitioner collects them in a set.
        return KeepWhole(sorted(ops, key=str))

    def match(
        self, program: ExportedProgram, taken: Mapping[str, str]
    ) -> tuple[list[Group], list[Refusal]]:
        """Match everything that is in no delegate yet.

        A delegate of CudaBackend is called with tensors only. So a node that computes a number,
        such as a dynamic size, is in one group with all nodes that read it; a number that comes
        from outside or leaves the method keeps its whole group out.

        Args:
            program: Edge-dialect program.
            taken: Not looked at; the host drops a group that lost a node.

        Returns:
            Atomic groups in graph order, and the reasons for refusing the other nodes.
        """
        groups, refusals = [], []
        for nodes in _by_numbers(get_non_lowered_nodes(program.graph)):
            crossing = next(_crossing(nodes), None)
            unknown = next((node for node in nodes if not _is_known(node)), None)
            if unknown is not None:
                why = f"AOTInductor has neither a lowering nor a C shim for {op_name(unknown)}"
                refusals += [Refusal(node, "op", why) for node in nodes]
            elif crossing is None:
                groups.append(Group(nodes))
            else:
                why = "is a number, and a CUDA delegate is called with tensors only"
                refusals += [Refusal(node, _NUMBER, f"{crossing.name} {why}") for node in nodes]
        return groups, refusals


def _is_known(node: Node) -> bool:
    """Whether AOTInductor can generate code for a node, or CudaBackend's runtime has its kernel.

    A custom op, such as TensorRT's execute_engine, would need a kernel that the runtime lacks.
    """
    op = aten_op(node.target)
    if not isinstance(op, OpOverload) or op.namespace in _NAMESPACES:
        return True
    return op._can_decompose() or op in lowerings or op in decompositions


def devices(program: ExportedProgram) -> dict[str, Device]:
    """The CUDA device of each value that is on one, by node name."""
    if program not in _devices:
        _devices[program] = dict(_on_cuda(program))
    return _devices[program]


def by_device(program: ExportedProgram, groups: Sequence[Group]) -> list[list[Group]]:
    """Groups sorted by the device of their values; those on the CPU go with the first device."""
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


def _by_numbers(nodes: Sequence[Node]) -> Iterable[list[Node]]:
    """Lists of nodes in graph order; nodes that pass a number to each other are in one list."""
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
    lists: dict[Node, list[Node]] = {}
    for node in nodes:
        lists.setdefault(find(node), []).append(node)
    return lists.values()


def _crossing(nodes: Sequence[Node]) -> Iterator[Node]:
    """Numbers that would pass between a delegate of these nodes and the rest of the program."""
    inside = set(nodes)
    for node in nodes:
        yield from (source for source in _numbers_read(node) if source not in inside)
        if _is_number(node) and not inside.issuperset(node.users):
            yield node


def _numbers_read(node: Node) -> Iterator[Node]:
    return (source for source in node.all_input_nodes if _is_number(source))


def _is_number(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)
