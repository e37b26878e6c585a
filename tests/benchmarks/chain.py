"""The chain: relu(linear) N times and a backend that does nothing, so that only the loop counts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.canonical_partitioners.pattern_op_partitioner import (
    generate_partitions_from_list_of_nodes,
)
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from executorch.exir.delegate import executorch_call_delegate
from torch import nn
from torch.fx import Node

from etdev import Claim, Group, hookimpl
from etdev.delegate.compile import Compiler
from etdev.delegate.split import Split
from etdev.graph.nodes import op_name
from etdev.planner.planner import Planner
from etdev.registry.selection import from_object
from etdev.upstream.edge import unverified
from etdev.upstream.shortcuts.collector import without_full_collections

LINEAR = ("aten.linear.default", "aten.addmm.default")
LAYOUT = ("aten.permute_copy.default", "aten.t_copy.default")


class Chain(nn.Module):
    """N small linear layers, each followed by a relu."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class ConstantBackend(BackendDetails):
    """Compiles anything to the same four bytes."""

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: Any) -> PreprocessResult:
        return PreprocessResult(processed_bytes=b"null")


def linears(program: Any) -> list[list[Node]]:
    """Each linear layer of a program with what turns its weight round; relus are left out."""
    layers = [node for node in program.graph.nodes if op_name(node) in LINEAR]
    return [[*(n for n in node.all_input_nodes if op_name(n) in LAYOUT), node] for node in layers]


class Null:
    """Claims every linear layer and its weights; the relus between keep them apart."""

    name = "null"

    @hookimpl
    def claim_nodes(self, program: Any) -> Claim:
        return Claim(ConstantBackend.__name__, [Group(nodes) for nodes in linears(program)])

    @hookimpl
    def claim_constants(self, partition: Any) -> Sequence[Any]:
        return partition.constants


class NullPartitioner(Partitioner):
    """Tags what `Null` claims, found as ExecuTorch's own partitioners find their partitions."""

    def partition(self, exported_program: Any) -> PartitionResult:
        tags = {}
        wanted = [list(nodes) for nodes in linears(exported_program)]
        found = generate_partitions_from_list_of_nodes(exported_program.graph_module, wanted)
        for partition in found:
            tag = f"null_{partition.id}"
            tags[tag] = DelegationSpec(ConstantBackend.__name__, [])
            for node in partition.nodes:
                node.meta["delegation_tag"] = tag
        tag_constant_data(exported_program)
        return PartitionResult(exported_program, tags)


def converted(count: int) -> EdgeProgramManager:
    """The chain in the edge dialect, by ExecuTorch itself, linears in parts."""
    program = torch.export.export(Chain(count).eval(), (torch.randn(2, 4),))
    return to_edge_transform_and_lower(program)


def etdev_loop(manager: EdgeProgramManager) -> EdgeProgramManager:
    """Plan, split, compile and join, as `Lowerer.lower` does after the edge conversion."""
    plugins = [from_object(Null())]
    planner = Planner(plugins)
    with without_full_collections():
        plan, program = planner.plan(manager.exported_program(), "forward", {})
    with without_full_collections():
        taken = Split(program, plan.partitions)
        compiled = Compiler(plugins).compile({"forward": taken})
    with without_full_collections():
        programs = {"forward": taken.join(compiled["forward"])}
    return EdgeProgramManager(programs, None, unverified(EdgeCompileConfig()))


def calls(manager: EdgeProgramManager) -> int:
    """Count the functions that our loop calls, whoever's they are."""
    total = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal total
        total += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        etdev_loop(manager)
    finally:
        sys.setprofile(before)
    return total


def upstream_loop(manager: EdgeProgramManager) -> EdgeProgramManager:
    """ExecuTorch's own way to the same delegates."""
    return manager.to_backend(NullPartitioner())


def delegates(manager: EdgeProgramManager) -> int:
    """How many delegates a program calls."""
    graph = manager.exported_program().graph
    return len(graph.find_nodes(op="call_function", target=executorch_call_delegate))


LOOPS = {"etdev": etdev_loop, "upstream": upstream_loop}
