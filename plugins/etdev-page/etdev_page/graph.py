"""Graph of a method: its inputs, partitions and portable nodes with the values between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile

import networkx
from attrs import frozen

from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan


@frozen
class Vertex:
    """A box of the graph.

    Args:
        kind: `input` of the method, `partition`, or `node` for a portable one and for the call of a
            delegate that the program came with.
        module: Path of the innermost module that contains all of it.
        reads: Names of the values that it reads.
        gives: Names of the values that it computes.
        position: Position of its first node in the ledger.
    """

    kind: str
    name: str
    module: str = ""
    reads: Sequence[str] = ()
    gives: Sequence[str] = ()
    position: int = -1


@frozen
class Graph:
    """Vertices in an order in which they can run.

    Args:
        edges: Names of the values that one vertex computes and another reads, by their positions.
    """

    vertices: Sequence[Vertex]
    edges: Mapping[tuple[int, int], Sequence[str]]


def graph_of(method: MethodPlan) -> Graph:
    """Return the graph of a method."""
    computed = sorted(_computed(method), key=lambda vertex: vertex.position)
    # A partition reads its constants, too, which are inputs of the method but not drawn.
    constants = {constant.name for p in method.partitions for constant in p.constants}
    known = constants.union(*(vertex.gives for vertex in computed))
    read = dict.fromkeys(name for vertex in computed for name in vertex.reads)
    inputs = [Vertex("input", name, gives=[name]) for name in read if name not in known]
    vertices = [*inputs, *computed]
    order = run_order(len(vertices), _edges(vertices))
    ordered = [vertices[number] for number in order]
    # Only a plan that was written by hand has a vertex that reads from a later one.
    edges = {pair: names for pair, names in _edges(ordered).items() if pair[0] < pair[1]}
    return Graph(ordered, edges)


def _common(modules: Sequence[str]) -> str:
    """Return the innermost module that contains all of these modules."""
    steps = zip(*(module.split(".") for module in modules), strict=False)
    return ".".join(step[0] for step in takewhile(lambda step: len(set(step)) == 1, steps))


def run_order(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return numbers up to a count, each after those that it reads, else ascending.

    Each pair is a number and one that reads it. Numbers on a cycle come last.
    """
    graph = networkx.DiGraph(list(pairs))
    graph.add_nodes_from(range(count))
    order: dict[int, None] = {}
    with suppress(networkx.NetworkXUnfeasible):
        for number in networkx.lexicographical_topological_sort(graph):
            order[number] = None
    return [*order, *(number for number in range(count) if number not in order)]


def _computed(method: MethodPlan) -> Iterator[Vertex]:
    """Yield a vertex for each partition and portable node."""
    entries = {entry.node: entry for entry in method.ledger}
    position = {node: index for index, node in enumerate(entries)}
    for partition in method.partitions:
        nodes = [node for node in partition.nodes if node in entries]
        yield Vertex(
            "partition",
            partition.name,
            _common([entries[node].module for node in nodes]),
            [value.name for value in partition.inputs],
            [*_values(partition), *(value for node in nodes for value in entries[node].values)],
            min((position[node] for node in nodes), default=-1),
        )
    for entry in method.ledger:
        if entry.partition is None:
            gives = [entry.node, *entry.values]
            at = position[entry.node]
            yield Vertex("node", entry.node, entry.module, entry.inputs, gives, at)


def _values(partition: Partition) -> list[str]:
    return [partition.name, *partition.nodes, *(value.name for value in partition.outputs)]


def _edges(vertices: Sequence[Vertex]) -> dict[tuple[int, int], list[str]]:
    producers: dict[str, int] = {}
    for index, vertex in enumerate(vertices):
        for name in vertex.gives:
            producers.setdefault(name, index)
    edges: dict[tuple[int, int], list[str]] = {}
    for index, vertex in enumerate(vertices):
        for name in vertex.reads:
            if (source := producers.get(name, index)) != index:
                edges.setdefault((source, index), []).append(name)
    return edges
