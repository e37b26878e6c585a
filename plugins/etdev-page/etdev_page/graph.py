"""Graph of a method, of its partitions and portable nodes with the values between them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from attrs import define, field, frozen

from etdev.schema.device import CPU, Device
from etdev.schema.ledger import Entry
from etdev.schema.modules import common
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan
from etdev.schema.tensors import Copy


@frozen
class Vertex:
    """A box of the graph.

    Args:
        kind: `partition`, `node` (a portable one, or the call of a delegate that the program came
            with) or `input` of the method.
        module: Path of the innermost module that contains all of it.
        reads: Names of the values that it reads.
    """

    kind: str
    name: str
    module: str
    device: Device
    reads: tuple[str, ...] = ()


@frozen
class Edge:
    """Names of values that one vertex computes and another reads, with copies to its device."""

    source: int
    target: int
    values: tuple[str, ...]
    copies: tuple[Copy, ...]


@define(eq=False)
class Graph:
    """Graph of a method, its vertices in an order in which they can run."""

    method: MethodPlan
    vertices: list[Vertex] = field(init=False)
    edges: list[Edge] = field(init=False)

    def __attrs_post_init__(self) -> None:
        vertices = list(_vertices(self.method))
        order = run_order(len(vertices), self._pairs(vertices))
        self.vertices = [vertices[index] for index in order]
        self.edges = list(self._edges())

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """Vertices that each vertex reads from."""
        read: list[list[int]] = [[] for _ in self.vertices]
        for edge in self.edges:
            read[edge.target].append(edge.source)
        return read

    def _pairs(self, vertices: Sequence[Vertex]) -> Iterator[tuple[int, int]]:
        """Yield pairs of a vertex and one that reads from it."""
        producers = self._producers(vertices)
        for index, vertex in enumerate(vertices):
            for source in {producers[name] for name in vertex.reads if name in producers} - {index}:
                yield source, index

    def _producers(self, vertices: Sequence[Vertex]) -> dict[str, int]:
        """Return the position of the vertex that computes each value."""
        given = {p.name: [value.name for value in p.outputs] for p in self.method.partitions}
        nodes = {p.name: (*p.nodes, *given[p.name]) for p in self.method.partitions}
        values = {entry.node: entry.values for entry in self.method.ledger}
        producers: dict[str, int] = {}
        for index, vertex in enumerate(vertices):
            names = (
                nodes[vertex.name] if vertex.kind == "partition" else values.get(vertex.name, ())
            )
            for name in (vertex.name, *names, *(v for n in names for v in values.get(n, ()))):
                producers.setdefault(name, index)
        return producers

    def _edges(self) -> Iterator[Edge]:
        producers = self._producers(self.vertices)
        copies: dict[str, list[Copy]] = {}
        for copy in self.method.copies:
            copies.setdefault(copy.tensor.name, []).append(copy)
        for target, vertex in enumerate(self.vertices):
            values: dict[int, list[str]] = {}
            for name in vertex.reads:
                # A cycle is possible only in a plan that was written by hand.
                if producers.get(name, target) < target:
                    values.setdefault(producers[name], []).append(name)
            for source, names in sorted(values.items()):
                moved = _moved(names, self.vertices[source], vertex, copies)
                yield Edge(source, target, tuple(names), moved)


def _vertices(method: MethodPlan) -> Iterator[Vertex]:
    entries = {entry.node: entry for entry in method.ledger}
    portable = [entry for entry in method.ledger if entry.partition is None]
    yield from _inputs(method, portable)
    for partition in method.partitions:
        modules = [entries[node].module for node in partition.nodes if node in entries]
        reads = tuple(tensor.name for tensor in partition.inputs)
        yield Vertex("partition", partition.name, common(modules), partition.device, reads)
    for entry in portable:
        yield Vertex("node", entry.node, entry.module, CPU, entry.inputs)


def _inputs(method: MethodPlan, portable: Iterable[Entry]) -> Iterator[Vertex]:
    """Yield the inputs of the method, which are values that no node computes."""
    known = {entry.node for entry in method.ledger}
    known |= {value for entry in method.ledger for value in entry.values}
    known |= {name for p in method.partitions for name in (*p.nodes, *_held(p))}
    known |= {value.name for p in method.partitions for value in p.outputs}
    read = [tensor.name for partition in method.partitions for tensor in partition.inputs]
    read += [name for entry in portable for name in entry.inputs]
    for name in dict.fromkeys(read):
        if name not in known:
            yield Vertex("input", name, "", CPU)


def _held(partition: Partition) -> Iterator[str]:
    return (constant.name for constant in partition.constants)


def _moved(
    names: Iterable[str], source: Vertex, target: Vertex, copies: dict[str, list[Copy]]
) -> tuple[Copy, ...]:
    if source.device == target.device:
        return ()
    return tuple(c for name in names for c in copies.get(name, ()) if c.target == target.device)


def run_order(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return numbers up to a count, each after those that it reads, else ascending.

    Each pair is a number and one that reads it. Numbers on a cycle come last.
    """
    readers: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for source, target in pairs:
        readers[source].append(target)
        waits[target] += 1
    ready = [number for number, reads in enumerate(waits) if not reads]
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for reader in readers[number]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    return order + [number for number, reads in enumerate(waits) if reads]
