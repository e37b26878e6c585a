"""Joining: a method is put together again, with a delegate call in place of each partition."""

from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Container, Iterator, Sequence
from typing import Any

from attrs import define, field
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputSpec
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from etdev.graph.method import run_order
from etdev.graph.nodes import FOREIGN_META
from etdev.graph.rebuild import rebuilt
from etdev.graph.signature import renamed
from etdev.schema.partition import Partition
from etdev.upstream.operators import edge_ops


@define(eq=False)
class Join:
    """Builds the graph that calls the delegates, in one walk over the original.

    Args:
        attribute: The attribute that has a delegate, before its number.
        keeps_names: Give the nodes the names that they had, also those that delegates return.
        calls: The calls of the delegates, by the number of the partition.
    """

    program: ExportedProgram
    partitions: Sequence[Partition]
    lowered: Sequence[LoweredBackendModule]
    attribute: str = "lowered_module"
    keeps_names: bool = False
    calls: dict[int, Node] = field(factory=dict, init=False)
    graph: Graph = field(factory=Graph, init=False)
    copies: dict[Node, Node] = field(factory=dict, init=False)
    root: dict[str, Any] = field(factory=dict, init=False)
    nodes: dict[str, Node] = field(init=False)
    names: Iterator[str] = field(init=False)
    frozen: set[str] = field(init=False)
    planned: dict[str, Node] = field(factory=dict, init=False)
    handle: int = field(default=0, init=False)

    def build(self) -> ExportedProgram:
        """Return the program that calls the delegates."""
        self.nodes = {node.name: node for node in self.program.graph.nodes}
        constants = [constant for own in self.partitions for constant in own.constants]
        self.frozen = {c.name for c in constants if not c.inside and not c.mutated}
        taken = {str(node.target) for node in self.program.graph.find_nodes(op="get_attr")}
        names = (f"{self.attribute}_{number}" for number in itertools.count())
        self.names = (name for name in names if name not in taken)
        self.handle = max((n.meta.get("debug_handle") or 0 for n in self.nodes.values()), default=0)
        kept = self._copy_placeholders()
        for unit in run_order(self.program.graph, self.partitions):
            if isinstance(unit, int):
                self._call(unit)
            else:
                self._copy(unit)
        written = {constant.update for constant in constants if constant.inside}
        return self._finish(kept, self._copy_output(written))

    def _copy_placeholders(self) -> set[str]:
        """Keep all inputs except constants that only delegates hold now."""
        home = {name: own.name for own in self.partitions for name in own.nodes}
        inside = {(own.name, c.name) for own in self.partitions for c in own.constants if c.inside}
        owned, kept = {name for _, name in inside}, set()
        for node in self.program.graph.find_nodes(op="placeholder"):
            readers = {(home.get(user.name), node.name) for user in node.users}
            if node.name not in owned or not readers <= inside:
                self.copies[node] = self.graph.node_copy(node)
                kept.add(node.name)
        return kept

    def _copy(self, node: Node) -> None:
        self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
        if node.op == "get_attr":
            value = getattr(self.program.graph_module, str(node.target))
            # ExecuTorch's later passes rewrite the branches of control flow in place.
            value = copy.deepcopy(value) if isinstance(value, GraphModule) else value
            self.root[str(node.target)] = value

    def _call(self, index: int) -> None:
        partition = self.partitions[index]
        inputs = [self._input(partition, self.nodes[tensor.name]) for tensor in partition.inputs]
        name = next(self.names)
        self.root[name] = self.lowered[index]
        attribute = self.graph.get_attr(name)
        call = self.graph.call_function(executorch_call_delegate, (attribute, *inputs))
        self.calls[index] = call
        outputs = [self.nodes[tensor.name] for tensor in partition.outputs]
        # ExecuTorch gives each delegate the next free handle; its Inspector finds events by it.
        self.handle += 1
        call.meta["debug_handle"] = self.handle
        call.meta["val"] = [node.meta["val"] for node in outputs]
        for position, node in enumerate(outputs):
            item = self.graph.call_function(operator.getitem, (call, position))
            item.meta = {k: v for k, v in node.meta.items() if k not in FOREIGN_META}
            self.copies[node] = item

    def _input(self, partition: Partition, node: Node) -> Node:
        """Return an input of a delegate; a constant for another device is cloned first.

        ExecuTorch copies inputs to the device from planned memory, and a constant has none.
        """
        if partition.device.memory.is_cpu or node.name not in self.frozen:
            return self.copies[node]
        if node.name not in self.planned:
            clone = self.graph.call_function(edge_ops.edge.aten.clone.default, (self.copies[node],))
            clone.meta = {"val": node.meta["val"]}
            self.planned[node.name] = clone
        return self.planned[node.name]

    def _copy_output(self, written: Container[str | None]) -> list[OutputSpec]:
        """Return what the method returned, except new values of buffers that delegates own."""
        old = self.program.graph.output_node()
        specs, results = [], []
        for spec, result in zip(
            self.program.graph_signature.output_specs, old.args[0], strict=True
        ):
            if not isinstance(result, Node) or result.name not in written:
                specs.append(spec)
                results.append(result)
        new = self.graph.output(map_arg(tuple(results), self.copies.__getitem__))
        new.meta = dict(old.meta)
        return specs

    def _finish(self, kept: set[str], outputs: Sequence[OutputSpec]) -> ExportedProgram:
        program = self.program
        for node, copied in self.copies.items() if self.keeps_names else ():
            copied.name = node.name
        names = {node.name: copy.name for node, copy in self.copies.items()}
        specs = [s for s in program.graph_signature.input_specs if s.arg.name in kept]
        signature = ExportGraphSignature(specs, [renamed(spec, names) for spec in outputs])
        return rebuilt(program, self.graph, signature, self.root)
