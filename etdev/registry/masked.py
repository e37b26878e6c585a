"""A copy of a method for a partitioner to tag, in which taken nodes are calls of delegates."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping

from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph, GraphModule, Node

from etdev.graph.method import MethodGraph, run_order
from etdev.graph.nodes import FOREIGN_META, describe, graph_modules
from etdev.graph.rebuild import rebuilt, with_own_graphs
from etdev.schema.partition import Partition

TAG = "delegation_tag"
_TAKEN = "taken"


def masked(program: ExportedProgram, method: str, taken: Mapping[str, str]) -> ExportedProgram:
    """Copy a program without its delegation tags; taken nodes become calls of delegates.

    Weights and foreign delegates are shared with the original. Nodes keep their names, and so do
    the values that come out of a delegate.
    """
    copied = with_own_graphs(program)
    graph, nodes = copied.graph, {node.name: node for node in copied.graph.nodes}
    for node in (n for module in graph_modules(copied.graph_module) for n in module.graph.nodes):
        node.meta.pop(TAG, None)
    delegates = list(partitions_of(MethodGraph(program, method), taken, _TAKEN))
    empty = _empty_module(program) if delegates else None
    calls = [_call(copied.graph_module, delegate, nodes, empty) for delegate in delegates]
    for unit in run_order(program.graph, delegates):
        for node in calls[unit] if isinstance(unit, int) else [nodes[unit.name]]:
            graph.output_node().prepend(node)
    members = {name for delegate in delegates for name in delegate.nodes}
    for node in reversed([node for name, node in nodes.items() if name in members]):
        graph.erase_node(node)
    for delegate, (_, _, *items) in zip(delegates, calls, strict=True):
        for tensor, item in zip(delegate.outputs, items, strict=True):
            item.name = tensor.name
    copied.graph_module.recompile()
    return copied


def _call(
    module: GraphModule,
    delegate: Partition,
    nodes: Mapping[str, Node],
    lowered: LoweredBackendModule | None,
) -> list[Node]:
    """Call a delegate, and read its results instead of its nodes; return the new nodes."""
    graph, attribute = module.graph, f"lowered_module_{delegate.name}"
    while hasattr(module, attribute):
        attribute += "_"
    setattr(module, attribute, lowered)
    inputs = [nodes[tensor.name] for tensor in delegate.inputs]
    outputs = [nodes[tensor.name] for tensor in delegate.outputs]
    with graph.inserting_before(graph.output_node()):
        read = graph.create_node("get_attr", attribute, name=attribute)
        call = graph.create_node(
            "call_function",
            executorch_call_delegate,
            (read, *inputs),
            name=f"delegate_{delegate.name}",
        )
        items = [graph.call_function(operator.getitem, (call, n)) for n in range(len(outputs))]
    call.meta["val"] = [node.meta["val"] for node in outputs]
    for item, node in zip(items, outputs, strict=True):
        item.meta = {key: value for key, value in node.meta.items() if key not in FOREIGN_META}
        node.replace_all_uses_with(item)
    return [read, call, *items]


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
