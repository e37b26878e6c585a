"""Nodes that OpenVINO takes: those of ExecuTorch's OpenvinoPartitioner that run as in PyTorch."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from attrs import define, field
from executorch.backends.openvino.partitioner import OpenvinoOperatorsSupport, OpenvinoPartitioner
from openvino.frontend.pytorch.torchdynamo.op_support import OperatorSupport
from torch.export import ExportedProgram
from torch.fx import Node

import etdev_openvino.compiler  # noqa: F401  Loads the compiler.
from etdev import Group, KeepWhole, Refusal
from etdev_openvino import attention
from etdev_openvino.edges import names, short
from etdev_openvino.soundness import (
    READ_POSITIONS,
    Reason,
    Soundness,
    is_dequantiser,
    is_nothing,
    is_quantiser,
)

_PREFIX = "torch.ops."
# OpenVINO's CPU device rounds what it computes for these to bfloat16.
_PRODUCTS = (
    *("convolution", "_convolution", "mm", "bmm", "addmm", "baddbmm", "linear", "matmul"),
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu"),
    *("scaled_dot_product_attention",),
    *("upsample_nearest2d", "upsample_nearest3d", "grid_sampler_2d", "_embedding_bag"),
)


class Support:
    """The nodes that OpenVINO takes and computes as PyTorch does.

    Args:
        skip: Ops not to take, with or without overload.
        products: Take the ops whose inputs OpenVINO may round to bfloat16.
        exact: Leave ops that differ from PyTorch at NaN or infinite values.
        rounds: Leave reads of constant tables, which OpenVINO may store in bfloat16.
    """

    def __init__(
        self, skip: Collection[str], products: bool, exact: bool = False, rounds: bool = False
    ) -> None:
        self._skip = frozenset(skip)
        self._exact, self._rounds = exact, rounds
        self._products = products
        known = OperatorSupport([])._support_dict | OpenvinoOperatorsSupport.extended_support_dict
        self._ops = {name.removeprefix(_PREFIX) for name in known if name.startswith(_PREFIX)}
        self._ops.add(attention.NAME)

    def keep_whole(self, program: ExportedProgram) -> KeepWhole:
        """Return the ATen ops that the partitioner keeps, if OpenVINO has them.

        Without products linear layers too: OpenVINO would take the view that a linear layer is
        decomposed into, and other plugins could no longer take the layer.
        """
        ops, _ = OpenvinoPartitioner([]).ops_to_not_decompose(program)
        kept = [op for op in ops if str(op) in self._ops]
        return KeepWhole([*kept, attention.OP if self._products else torch.ops.aten.linear.default])

    def match(
        self, program: ExportedProgram, taken: Mapping[str, str]
    ) -> tuple[list[Group], list[Refusal], list[Refusal]]:
        """Match what the partitioner would take, judging each node as if a delegate ended there.

        Args:
            program: Edge-dialect program.
            taken: Not looked at; the host drops a group that lost a node.

        Returns:
            Atomic groups in graph order, the reasons for refusing the other nodes, and caveats.
        """
        unpacking = _unpacking(program)
        sound = Soundness(program, unpacking, self._exact)
        ops = [n for n in program.graph.nodes if n.op == "call_function"]
        ops = [node for node in ops if node.target is not operator.getitem]
        reasons = self._reasons(ops, sound, unpacking)
        _refuse_preparations(ops, sound.fixed, reasons)
        groups = _Groups(sound, reasons)
        for node in ops:
            if node not in reasons:
                groups.add(node)
        refusals = [Refusal(node, *reasons[node]) for node in ops if node in reasons]
        kept = [node for node in ops if node not in reasons and not self._exact]
        caveats = [Refusal(node, *caveat) for node in kept if (caveat := sound.nan_problem(node))]
        return [Group(nodes, why) for nodes, why in groups.opened if nodes], refusals, caveats

    def _reasons(
        self, ops: Collection[Node], sound: Soundness, unpacking: Collection[str]
    ) -> dict[Node, Reason]:
        """Return why nodes are not taken, each judged by itself but for its scalars."""
        reasons: dict[Node, Reason] = {}
        for node in ops:
            reason = self._unwanted(node, unpacking) or sound.problem(node)
            if reason is None and self._rounds and _reads_table(node, sound.fixed):
                reason = "precision", "OpenVINO misreads a table that it rounds to bfloat16"
            refused = [source for source in node.all_input_nodes if source in reasons]
            if reason is None and any(sound.is_scalar(source) for source in refused):
                reason = "rank", "OpenVINO's delegate fails on tensors without dimensions"
            if reason:
                reasons[node] = reason
        return reasons

    def _unwanted(self, node: Node, unpacking: Collection[str]) -> Reason | None:
        name, packet = names(node)
        if skipped := self._skip & {name, packet}:
            return "skipped", f"{min(skipped)} is in the option skip"
        if short(node) in _PRODUCTS and not self._products:
            return "precision", "OpenVINO rounds its inputs to bfloat16 where the CPU has it"
        if name not in self._ops and node.name not in unpacking:
            return "op", f"OpenVINO has no {name}"
        return None


def _reads_table(node: Node, fixed: Collection[str]) -> bool:
    """Return True if an op picks rows of what is constant."""
    return short(node) in READ_POSITIONS and node.all_input_nodes[0].name in fixed


def _unpacking(program: ExportedProgram) -> set[str]:
    """Names of the nodes that unpack 4-bit weights, which OpenVINO has only as one pattern."""
    partitioner = OpenvinoPartitioner([])
    partitioner.capture_nncf_patterns(program.graph_module)
    return set(partitioner._enabled_ops_by_name)


def _refuse_preparations(
    ops: list[Node], fixed: Collection[str], reasons: dict[Node, Reason]
) -> None:
    """Refuse what is computed from constants alone, unless all ops that read it are taken.

    Other backends know a linear layer by its transposed weight, and can't take it without the
    transpose.
    """
    taken = set(ops) - reasons.keys()
    for node in reversed(ops):
        if node in taken and node.name in fixed and not taken.issuperset(node.users):
            taken.remove(node)
            reasons[node] = "constant", "it prepares a constant for an op that is not taken"


@define(eq=False)
class _Groups:
    """Atomic groups while they are being formed, in graph order.

    Args:
        sound: Tells which nodes are scalars, which go with their op.
        reasons: Why nodes are not taken; nodes that can't be grouped are added.
        opened: Nodes of each group and what matched, in the order the groups were opened.
    """

    sound: Soundness
    reasons: dict[Node, Reason]
    opened: list[tuple[list[Node], str]] = field(factory=list)
    _group_of: dict[Node, list[Node]] = field(factory=dict)

    def add(self, node: Node) -> None:
        """Open a group for a node, or add it to the group of the node that it goes with."""
        if is_quantiser(node):
            self._add_quantiser(node)
        elif is_dequantiser(node):
            if node not in self._group_of:
                self.reasons[node] = "quantised", "its quantiser is not taken"
        elif self.sound.is_scalar(node):
            self._add_scalar(node)
        elif is_nothing(node):
            self._add_nothing(node)
        else:
            self._open([*self._group_of.get(node, ()), node], "")

    def _open(self, nodes: list[Node], why: str) -> None:
        self.opened.append((nodes, why))
        self._group_of.update(dict.fromkeys(nodes, nodes))

    def _add_quantiser(self, node: Node) -> None:
        readers = {reader for user in node.users for reader in user.users}
        if not self.reasons.keys().isdisjoint(node.users):
            self.reasons[node] = "quantised", "its dequantiser is not taken"
        elif node.args[0] in self.reasons or self.reasons.keys() >= readers:
            # Other backends know a quantised layer by its quantisers.
            self.reasons[node] = "quantised", "it goes with an op that is not taken"
        elif sum(map(self._leaves, node.users)) > 1:
            self.reasons[node] = "quantised", "OpenVINO's delegate can't return a value twice"
        else:
            self._open([node, *node.users], "fake quantiser")

    def _add_scalar(self, node: Node) -> None:
        (user,) = node.users
        group = self._group_of.setdefault(node, [])
        group.append(node)
        if (other := self._group_of.get(user)) is not None and other is not group:
            other += group
            self._group_of.update(dict.fromkeys(group, other))
        else:
            self._group_of[user] = group

    def _add_nothing(self, node: Node) -> None:
        source: Any = node.args[0]
        while source.target is operator.getitem:
            source = source.args[0]
        group = self._group_of.get(source)
        if group is None:
            self.reasons[node] = "nothing", "OpenVINO's delegate can't return what it is given"
        elif self._is_returned_twice(node):
            self.reasons[node] = "nothing", "OpenVINO's delegate can't return a value twice"
        else:
            group.append(node)
            self._group_of[node] = group

    def _is_returned_twice(self, node: Node) -> bool:
        """Return True if a copy leaves the delegates, and its source or another copy does too."""
        if not any(map(self._leaves, _copies(node))):
            return False
        source: Any = node
        while is_nothing(source):
            source = source.args[0]
        return sum(map(self._leaves, _copies(source))) > 1

    def _leaves(self, node: Node) -> bool:
        return any(user.op == "output" or user in self.reasons for user in node.users)


def _copies(node: Node) -> Iterator[Node]:
    """Return a node and its copies, which to OpenVINO are one value."""
    yield node
    for user in filter(is_nothing, node.users):
        yield from _copies(user)
