"""A copy of a method for a partitioner to tag, in which taken nodes are calls of delegates."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, GraphModule, Node

from etdev.graph.method import MethodGraph, run_order
from etdev.graph.nodes import FOREIGN_META, describe, graph_modules
from etdev.graph.rebuild import rebuilt
from etdev.schema.partition import Partition

TAG = "delegation_tag"
_TAKEN = "taken"


def masked(program: ExportedProgram, method: str, taken: Mapping[str, str]) -> ExportedProgram:
    """Copy a program without its delegation tags; taken nodes become calls of delegates.

    Weights and foreign delegates are shared with the original. Nodes keep their names, and so do
    the values that come out of a delegate.
    """
    mask = _Mask(MethodGraph(program, method))
    delegates = list(partitions_of(mask.original, taken, _TAKEN))
    empty = _empty_module(program) if delegates else None
    for node in program.graph.find_nodes(op="placeholder"):
        mask.copy(node)
    for unit in run_order(program.graph, delegates):
        if isinstance(unit, int):
            mask.call(delegates[unit], empty)
        else:
            mask.copy(unit)
    mask.copy(program.graph.output_node())
    signature = copy.deepcopy(program.graph_signature)
    return rebuilt(program, mask.graph, signature, mask.root)


@define(eq=False)
class _Mask:
    """A copy while it is built, in one walk over the original."""

    original: MethodGraph
    graph: Graph = field(factory=Graph)
    copies: dict[str, Node] = field(factory=dict)
    root: dict[str, Any] = field(factory=dict)
    used: set[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        nodes = self.original.program.graph.nodes
        self.used = {text for node in nodes for text in (node.name, str(node.target))}

    def copy(self, node: Node) -> None:
        copied = self.graph.node_copy(node, lambda read: self.copies[read.name])
        copied.meta.pop(TAG, None)
        self.copies[node.name] = copied
        if node.op == "get_attr":
            value = getattr(self.original.program.graph_module, str(node.target))
            if isinstance(value, GraphModule):
                value = copy.deepcopy(value)
                # A partitioner may tag inside the branches of control flow, too.
                for inner in (n for level in graph_modules(value) for n in level.graph.nodes):
                    inner.meta.pop(TAG, None)
            self.root[str(node.target)] = value

    def call(self, delegate: Partition, module: LoweredBackendModule | None) -> None:
        attribute = self._fresh(f"lowered_module_{delegate.name}")
        self.root[attribute] = module
        inputs = [self.copies[tensor.name] for tensor in delegate.inputs]
        call = self.graph.create_node(
            "call_function",
            executorch_call_delegate,
            (self.graph.create_node("get_attr", attribute, name=attribute), *inputs),
            name=self._fresh(f"delegate_{delegate.name}"),
        )
        nodes = self.original.nodes
        outputs = [nodes[self.original.number[tensor.name]] for tensor in delegate.outputs]
        call.meta["val"] = [node.meta["val"] for node in outputs]
        for position, node in enumerate(outputs):
            item = self.graph.create_node(
                "call_function", operator.getitem, (call, position), name=node.name
            )
            hidden = (*FOREIGN_META, TAG)
            item.meta = {key: value for key, value in node.meta.items() if key not in hidden}
            self.copies[node.name] = item

    def _fresh(self, name: str) -> str:
        """Return a name that no node or attribute of the original has."""
        while name in self.used:
            name += "_"
        return name


def partitions_of(graph: MethodGraph, taken: Mapping[str, str], owner: str) -> Iterator[Partition]:
    """Yield nodes as partitions that read their constants from outside, by partition's name."""
    numbers: dict[str, list[int]] = {}
    for name, delegate in taken.items():
        numbers.setdefault(delegate, []).append(graph.number[name])
    for delegate, members in numbers.items():
        yield Partition(
            name=delegate,
            method=graph.method,
            plugin=owner,
            backend_id=owner,
            nodes=tuple(graph.nodes[number].name for number in sorted(members)),
            inputs=tuple(describe(node) for node in graph.reads(members)),
            outputs=tuple(describe(node) for node in graph.outputs(members)),
        )


def _empty_module(program: ExportedProgram) -> LoweredBackendModule:
    """Return a lowered module that stands for every delegate, with nothing inside."""
    graph = Graph()
    graph.output(())
    empty = rebuilt(program, graph, ExportGraphSignature([], []), {})
    return LoweredBackendModule(empty, _TAKEN, b"", [])
