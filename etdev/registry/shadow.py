"""The shadow: a copy of a method for a partitioner to tag, taken nodes as foreign delegates."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, GraphModule, Node

from etdev.graph.method import MethodGraph
from etdev.graph.nodes import FOREIGN_META, describe, graph_modules
from etdev.graph.order import run_order
from etdev.graph.rebuild import rebuilt
from etdev.schema.partition import Partition

TAG = "delegation_tag"
_TAKEN = "taken"


def shadow(program: ExportedProgram, method: str, taken: Mapping[str, str]) -> ExportedProgram:
    """Copy a program without its delegation tags; taken nodes become calls of delegates.

    Weights and foreign delegates are shared with the original. Nodes keep their names, and so do
    the values that come out of a delegate.

    Args:
        program: Program of one method; it is not changed.
        method: Its name.
        taken: The delegate of each node that has one; a delegate's nodes are convex.
    """
    return _Shadow(MethodGraph(program, method), taken).build()


@define(eq=False)
class _Shadow:
    """Builds the copy, in one walk over the original."""

    original: MethodGraph
    taken: Mapping[str, str]
    graph: Graph = field(factory=Graph)
    copies: dict[Node, Node] = field(factory=dict)
    root: dict[str, Any] = field(factory=dict)
    nodes: dict[str, Node] = field(init=False)
    names: set[str] = field(init=False)

    def build(self) -> ExportedProgram:
        original = self.original.program.graph
        self.nodes = {node.name: node for node in original.nodes}
        self.names = {*self.nodes, *(str(n.target) for n in original.find_nodes(op="get_attr"))}
        for node in original.find_nodes(op="placeholder"):
            self._copy(node)
        delegates = list(self._delegates())
        opaque = _opaque(self.original.program) if delegates else None
        for unit in run_order(original, delegates):
            if isinstance(unit, int):
                self._call(delegates[unit], opaque)
            else:
                self._copy(unit)
        self._copy(original.output_node())
        signature = copy.deepcopy(self.original.program.graph_signature)
        return rebuilt(self.original.program, self.graph, signature, self.root)

    def _delegates(self) -> Iterable[Partition]:
        """The taken nodes as partitions that read their constants from outside."""
        numbers: dict[str, list[int]] = {}
        for name, delegate in self.taken.items():
            numbers.setdefault(delegate, []).append(self.original.number[name])
        for delegate, members in numbers.items():
            yield Partition(
                name=delegate,
                method=self.original.method,
                plugin=_TAKEN,
                backend_id=_TAKEN,
                nodes=tuple(self.original.nodes[number].name for number in sorted(members)),
                inputs=tuple(describe(node) for node in self.original.reads(members)),
                outputs=tuple(describe(node) for node in self.original.outputs(members)),
            )

    def _copy(self, node: Node) -> None:
        copied = self.graph.node_copy(node, self.copies.__getitem__)
        copied.meta.pop(TAG, None)
        self.copies[node] = copied
        if node.op == "get_attr":
            value = getattr(self.original.program.graph_module, str(node.target))
            # A partitioner may tag inside the branches of control flow, too.
            value = _branch(value) if isinstance(value, GraphModule) else value
            self.root[str(node.target)] = value

    def _call(self, delegate: Partition, module: LoweredBackendModule | None) -> None:
        attribute = self._fresh(f"lowered_module_{delegate.name}")
        self.root[attribute] = module
        inputs = [self.copies[self.nodes[tensor.name]] for tensor in delegate.inputs]
        call = self.graph.create_node(
            "call_function",
            executorch_call_delegate,
            (self.graph.create_node("get_attr", attribute, name=attribute), *inputs),
            name=self._fresh(f"delegate_{delegate.name}"),
        )
        outputs = [self.nodes[tensor.name] for tensor in delegate.outputs]
        call.meta["val"] = [node.meta["val"] for node in outputs]
        for position, node in enumerate(outputs):
            item = self.graph.create_node(
                "call_function", operator.getitem, (call, position), name=node.name
            )
            hidden = (*FOREIGN_META, TAG)
            item.meta = {key: value for key, value in node.meta.items() if key not in hidden}
            self.copies[node] = item

    def _fresh(self, name: str) -> str:
        """A name that is free in the original."""
        while name in self.names:
            name += "_"
        return name


def _branch(module: GraphModule) -> GraphModule:
    branch = copy.deepcopy(module)
    for level in graph_modules(branch):
        for node in level.graph.nodes:
            node.meta.pop(TAG, None)
    return branch


def _opaque(program: ExportedProgram) -> LoweredBackendModule:
    """A lowered module that stands for every delegate; there is nothing inside to look at."""
    graph = Graph()
    graph.output(())
    empty = rebuilt(program, graph, ExportGraphSignature([], []), {})
    return LoweredBackendModule(empty, _TAKEN, b"", [])
