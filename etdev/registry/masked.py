"""A copy of a method for a partitioner to tag, in which taken nodes are calls of delegates."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Mapping
from typing import Any

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
# The plugin of the nodes, and the attribute that their calls read.
_TAKEN = "etdev_taken"


def masked(program: ExportedProgram, method: str, taken: Mapping[str, str]) -> ExportedProgram:
    """Copy a program without its delegation tags; taken nodes become calls of delegates.

    Weights and foreign delegates are shared with the original. Nodes keep their names, and so do
    the values that come out of a delegate.
    """
    delegates = list(partitions_of(MethodGraph(program, method), taken, _TAKEN))
    old, graph = program.graph, Graph()
    nodes = {node.name: node for node in old.nodes}
    root: dict[str, Any] = {_TAKEN: _empty_module(program)} if delegates else {}
    copies: dict[Node, Node] = {}
    for unit in (*old.find_nodes(op="placeholder"), *run_order(old, delegates), old.output_node()):
        if isinstance(unit, int):
            copies |= _call(graph, delegates[unit], nodes, copies)
            continue
        copies[unit] = graph.node_copy(unit, copies.__getitem__)
        if unit.op == "get_attr":
            value = getattr(program.graph_module, str(unit.target))
            value = copy.deepcopy(value) if isinstance(value, GraphModule) else value
            root[str(unit.target)] = value
    for node, copied in copies.items():
        copied.name = node.name
    own = rebuilt(program, graph, root=root)
    for node in (n for module in graph_modules(own.graph_module) for n in module.graph.nodes):
        node.meta.pop(TAG, None)
    return own


def _call(
    graph: Graph, delegate: Partition, nodes: Mapping[str, Node], copies: Mapping[Node, Node]
) -> dict[Node, Node]:
    """Call a delegate; return its results by the nodes whose values they are."""
    inputs = [copies[nodes[tensor.name]] for tensor in delegate.inputs]
    outputs = [nodes[tensor.name] for tensor in delegate.outputs]
    arguments, name = (graph.get_attr(_TAKEN), *inputs), f"delegate_{delegate.name}"
    call = graph.create_node("call_function", executorch_call_delegate, arguments, name=name)
    call.meta["val"] = [node.meta["val"] for node in outputs]
    items = {}
    for place, node in enumerate(outputs):
        items[node] = item = graph.call_function(operator.getitem, (call, place))
        item.meta = {key: value for key, value in node.meta.items() if key not in FOREIGN_META}
    return items


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
