"""Tree of modules of a graph; the page can show each of them as one box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field

from etdev_page.graph import Graph


@define(eq=False)
class Group:
    """Vertices of a module that can be shown as one box.

    A module whose nodes run in several separate parts has a group for each part: one box for all of
    them would read from the nodes in between, and be read by them.

    Args:
        vertices: Positions of all its vertices.
        children: Positions of vertices that are shown by themselves, and groups.
        part: Number of the part of the module, from 1, of so many `parts`.
    """

    path: str
    vertices: list[int]
    children: list[int | Group] = field(factory=list)
    part: int = 1
    parts: int = 1


# Key of a child of a group: a module with -1, or the module and number of a single vertex.
_Key = tuple[str, int]


def tree(graph: Graph) -> Group:
    """Return the whole graph as a group of groups."""
    root = Group("", list(range(len(graph.vertices))))
    work = [root]
    while work:
        group = work.pop()
        for (module, _), vertices in _clusters(graph, group):
            # A box around a single vertex would be redundant.
            if len(vertices) == 1:
                group.children.append(vertices[0])
                continue
            child = Group(module, vertices)
            group.children.append(child)
            work.append(child)
    _number(root)
    return root


def _clusters(graph: Graph, group: Group) -> list[tuple[_Key, list[int]]]:
    """Partition the vertices of a group, without cycles between the parts.

    A vertex is a level below those of other keys that it reads, so that vertices of the same key
    and level can't lie both before and after another one.
    """
    keys = _keys(graph, group)
    while len(set(keys.values())) == 1 and keys[group.vertices[0]][1] < 0:
        # One module contains the whole group: go on with that module's children.
        group.path = keys[group.vertices[0]][0]
        keys = _keys(graph, group)
    clusters: dict[tuple[_Key, int], list[int]] = {}
    for vertex, level in _levels(graph, group.vertices, keys).items():
        clusters.setdefault((keys[vertex], level), []).append(vertex)
    return [(key, vertices) for (key, _), vertices in clusters.items()]


def _levels(graph: Graph, vertices: Sequence[int], keys: Mapping[int, _Key]) -> dict[int, int]:
    """Return a level for each vertex, not above those that it reads, below those of other keys."""
    levels: dict[int, int] = {}
    readers: dict[int, list[int]] = {vertex: [] for vertex in vertices}
    for vertex in vertices:
        read = [v for v in graph.neighbours[vertex] if v in levels]
        levels[vertex] = max((levels[v] + (keys[v] != keys[vertex]) for v in read), default=0)
        for source in read:
            readers[source].append(vertex)
    for vertex in reversed(vertices):
        # A mask or a constant that is not needed earlier belongs to its readers.
        if any(keys[reader] == keys[vertex] for reader in readers[vertex]):
            latest = (levels[r] - (keys[r] != keys[vertex]) for r in readers[vertex])
            levels[vertex] = max(levels[vertex], min(latest))
    return levels


def _keys(graph: Graph, group: Group) -> dict[int, _Key]:
    return {vertex: _key(graph, vertex, group.path) for vertex in group.vertices}


def _key(graph: Graph, vertex: int, path: str) -> _Key:
    module = graph.vertices[vertex].module
    start = len(path) + 1 if path else 0
    if module == path or graph.vertices[vertex].kind == "input":
        return path, vertex
    end = module.find(".", start)
    return (module if end < 0 else module[:end]), -1


def _number(root: Group) -> None:
    """Set the part numbers of the groups of each module."""
    groups = list(walk(root))
    same: dict[str, list[Group]] = {}
    for group in groups:
        same.setdefault(group.path, []).append(group)
    for several in same.values():
        for index, group in enumerate(several):
            group.part, group.parts = index + 1, len(several)


def walk(root: Group) -> Sequence[Group]:
    """Return a group and all groups in it, in the order of the graph, each before its own."""
    groups = [root]
    # The list grows while it is read.
    for group in groups:
        groups += [child for child in group.children if isinstance(child, Group)]
    return groups
