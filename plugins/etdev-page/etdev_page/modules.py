"""The tree of a graph: modules within modules, each of which the page can show as one box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field, frozen

from etdev_page.graph import Graph


@define(eq=False)
class Group:
    """The vertices of a module that can be shown as one box.

    A module whose nodes are computed in several goes, with others between them, has a group for
    each: as one box they would both read of the others and be read by them.

    Args:
        path: Path of the module; empty for the model.
        vertices: Positions of all its vertices.
        children: Positions of vertices that are shown by themselves, and groups.
        part: Which of the groups of its module it is, counted from 1.
        parts: How many there are.
    """

    path: str
    vertices: list[int]
    children: list[int | Group] = field(factory=list)
    part: int = 1
    parts: int = 1


@frozen
class _Key:
    """What the children of a group are told apart by: a module, or a vertex by itself."""

    module: str
    vertex: int = -1


def tree(graph: Graph) -> Group:
    """The whole graph as a group of groups."""
    root = Group("", list(range(len(graph.vertices))))
    work = [root]
    while work:
        group = work.pop()
        for key, vertices in _clusters(graph, group):
            # A box around a single vertex would say nothing more.
            if len(vertices) == 1:
                group.children.append(vertices[0])
                continue
            child = Group(key.module, vertices)
            group.children.append(child)
            work.append(child)
    _number(root)
    return root


def _clusters(graph: Graph, group: Group) -> list[tuple[_Key, list[int]]]:
    """What the vertices of a group fall into, without cycles between them.

    Each step from one key to another goes one level down, and nothing comes back up: what has one
    key and one level can't lie both before and after anything else.
    """
    keys = _keys(graph, group)
    while len(set(keys.values())) == 1 and keys[group.vertices[0]].vertex < 0:
        # One module has all of it: what is in it can be shown at once.
        group.path = keys[group.vertices[0]].module
        keys = _keys(graph, group)
    clusters: dict[tuple[_Key, int], list[int]] = {}
    for vertex, level in _levels(graph, group.vertices, keys).items():
        clusters.setdefault((keys[vertex], level), []).append(vertex)
    return [(key, vertices) for (key, _), vertices in clusters.items()]


def _levels(graph: Graph, vertices: Sequence[int], keys: Mapping[int, _Key]) -> dict[int, int]:
    """A level for each vertex: not above one that it reads, and below one of another key."""
    levels: dict[int, int] = {}
    readers: dict[int, list[int]] = {vertex: [] for vertex in vertices}
    for vertex in vertices:
        read = [v for v in graph.neighbours[vertex] if v in levels]
        levels[vertex] = max((levels[v] + (keys[v] != keys[vertex]) for v in read), default=0)
        for source in read:
            readers[source].append(vertex)
    for vertex in reversed(vertices):
        # What could wait until its readers are computed belongs with them: a mask, a constant.
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
        return _Key(path, vertex)
    end = module.find(".", start)
    return _Key(module if end < 0 else module[:end])


def _number(root: Group) -> None:
    """Number the groups of each module."""
    groups = list(walk(root))
    same: dict[str, list[Group]] = {}
    for group in groups:
        same.setdefault(group.path, []).append(group)
    for several in same.values():
        for index, group in enumerate(several):
            group.part, group.parts = index + 1, len(several)


def walk(root: Group) -> Sequence[Group]:
    """A group and all groups in it; each comes before those in it, in the order of the graph."""
    groups = [root]
    # The list grows while it is read.
    for group in groups:
        groups += [child for child in group.children if isinstance(child, Group)]
    return groups
