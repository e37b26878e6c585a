"""A copy of a method for a partitioner to tag, in which taken nodes are calls of delegates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import Graph

from etdev.graph.join import Join
from etdev.graph.method import MethodGraph
from etdev.graph.nodes import describe, graph_modules
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
    modules = [_empty_module(program)] * len(delegates)
    join = Join(program, delegates, modules, _TAKEN, keeps_names=True)
    own = join.build()
    for number, call in join.calls.items():
        call.name = f"delegate_{delegates[number].name}"
    for node in (n for module in graph_modules(own.graph_module) for n in module.graph.nodes):
        node.meta.pop(TAG, None)
    return own


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
