"""Modules of a graph; the page can show each as one box."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from attrs import define, field

from etdev_page.graph import Graph, Vertex


@define
class Group:
    """Vertices of a module that run one after the other.

    A module that runs in several parts has a group for each: one box for all of them would read
    from the nodes in between, and be read by them.

    Args:
        vertices: Positions of all its vertices.
        children: The vertices that are in no group within it, and numbers of groups.
        part: The number of the part, from 1, and how many parts the module has.
    """

    path: str
    vertices: Sequence[int]
    children: list[int] = field(factory=list)
    part: tuple[int, int] = (1, 1)


def groups_of(graph: Graph) -> list[Group]:
    """Return the whole graph as a group, and all groups in it, each before those within it.

    Groups are numbered after the vertices of the graph.
    """
    count = len(graph.vertices)
    groups = [Group("", range(count))]
    # The list grows while it is read.
    for group in groups:
        for path, vertices in _modules(graph, group):
            # A box around a single vertex would be redundant.
            if not path or len(vertices) == 1:
                group.children += vertices
            else:
                group.children.append(count + len(groups))
                groups.append(Group(path, vertices))
    parts, number = Counter(group.path for group in groups), Counter[str]()
    for group in groups:
        number[group.path] += 1
        group.part = number[group.path], parts[group.path]
    return groups


def _modules(graph: Graph, group: Group) -> Iterator[tuple[str, list[int]]]:
    """Yield the modules within a group with their vertices; no path for the group's own ones."""
    while True:
        keys = {index: _within(group.path, graph.vertices[index]) for index in group.vertices}
        paths = set(keys.values())
        if len(paths) != 1 or "" in paths:
            break
        # One module contains the whole group: go on with that module's children.
        (group.path,) = paths
    for path, vertices in groupby(group.vertices, key=keys.__getitem__):
        yield path, list(vertices)


def _within(path: str, vertex: Vertex) -> str:
    """Return the child of a module that contains a vertex; empty if it is the module's own."""
    if vertex.module == path:
        return ""
    start = len(path) + 1 if path else 0
    end = vertex.module.find(".", start)
    return vertex.module if end < 0 else vertex.module[:end]
