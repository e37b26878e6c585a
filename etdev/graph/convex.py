"""Convex partitions of a graph, as few as possible, found in linear time.

Works on bare numbers, so that it can be tested without torch. They must be topological: node n
reads smaller numbers only, as in `MethodGraph.inputs`. Otherwise a single node could close a cycle,
and there would be no group to refuse.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import networkx
from attrs import frozen

T = TypeVar("T", bound=Hashable)
# For each unit, ascending, the other units that it reads.
Reads = Mapping[int, Sequence[int]]


@frozen
class Convexity:
    """Partitions, and the groups that no partition can hold."""

    # Node numbers, ascending, in an order in which the partitions can run.
    partitions: tuple[tuple[int, ...], ...]
    # Refused groups, by position, each with a node that lies between nodes of the group.
    torn: dict[int, int]
    # For each partition the node that kept it apart from an earlier one; None for the first.
    split_by: tuple[int | None, ...]


def find_partitions(
    inputs: Sequence[Sequence[int]],
    groups: Sequence[Sequence[int]],
    blocks: Iterable[Sequence[int]] = (),
    merge: bool = True,
) -> Convexity:
    """Join groups into the fewest convex partitions, which form no cycle with the blocks.

    Joined nodes are one unit, which has the number of its smallest node. A unit's level counts how
    often the longest path to it passes from joinable to other units. Joinable units of one level
    never depend on each other through others, so each level is one partition, and no smaller number
    can do, since a path that visits k levels needs k partitions. One walk over the graph for the
    levels, one for its strongly connected components.

    Args:
        inputs: For each node the nodes it reads, all with smaller numbers.
        groups: Disjoint atomic groups of joinable nodes.
        blocks: Disjoint sets of other nodes that are one unit already (earlier partitions).
        merge: False leaves each group a partition of its own.
    """
    unit_of = {node: node for node in range(len(inputs))}
    for nodes in (*blocks, *groups):
        unit_of |= dict.fromkeys(nodes, min(nodes))
    torn, reads, order = _join_groups(inputs, groups, unit_of)
    joinable = {unit_of[node] for i, group in enumerate(groups) if i not in torn for node in group}
    if merge:
        levels, causes = _levels(reads, order, joinable)
        _delay(reads, order, joinable, levels)
    else:
        levels, causes = {unit: place for place, unit in enumerate(order)}, {}
    by_level: dict[int, list[int]] = {}
    for node, unit in unit_of.items():
        if unit in joinable:
            by_level.setdefault(levels[unit], []).append(node)
    ranks = sorted(by_level)
    return Convexity(
        tuple(tuple(by_level[rank]) for rank in ranks),
        torn,
        tuple(causes.get(rank) if rank != ranks[0] else None for rank in ranks),
    )


def _reads(inputs: Sequence[Sequence[int]], unit_of: Mapping[int, int]) -> Reads:
    reads: dict[int, dict[int, None]] = {unit: {} for unit in unit_of.values()}
    for node, unit in unit_of.items():
        for source in inputs[node]:
            if unit_of[source] != unit:
                reads[unit][unit_of[source]] = None
    return {unit: sorted(sources) for unit, sources in reads.items()}


def components(reads: Reads) -> list[list[int]]:
    """Return the strongly connected components, each after those that it reads."""
    # The order is that of Tarjan's algorithm.
    graph = networkx.from_dict_of_lists(reads, networkx.DiGraph)
    return [sorted(part) for part in networkx.strongly_connected_components(graph)]


def _join_groups(
    inputs: Sequence[Sequence[int]], groups: Sequence[Sequence[int]], unit_of: dict[int, int]
) -> tuple[dict[int, int], Reads, list[int]]:
    """Merge or refuse groups that wait for each other.

    A cycle of groups only becomes one bigger group. A cycle through other nodes tears groups: those
    that another unit both reads and feeds, else all groups of several nodes in the cycle.

    Returns:
        The refused groups, what each unit reads, and the units, each after what it reads.
    """
    torn: dict[int, int] = {}
    reads = _reads(inputs, unit_of)
    if len(reads) == len(inputs):
        # Every unit is one node, and their numbers are an order without a cycle.
        return torn, reads, list(reads)
    group_of = {unit_of[group[0]]: index for index, group in enumerate(groups)}
    parts = components(reads)
    while cycles := [part for part in parts if len(part) > 1]:
        mixed = [part for part in cycles if not group_of.keys() >= {*part}]
        for part in mixed:
            others = [unit for unit in part if unit not in group_of]
            claimed = {unit: groups[group_of[unit]] for unit in part if unit in group_of}
            wide = {unit: nodes for unit, nodes in claimed.items() if len(nodes) > 1}
            assert wide, "single nodes form no cycle, not even with the blocks"
            lost = _between(reads, others, wide) or dict.fromkeys(wide, others[0])
            for unit, blocker in lost.items():
                torn[group_of.pop(unit)] = blocker
                unit_of.update(zip(wide[unit], wide[unit], strict=True))
        for part in cycles if not mixed else ():
            # The smallest of its units is the number of the smallest node.
            unit_of |= {node: part[0] for unit in part for node in groups[group_of[unit]]}
        reads = _reads(inputs, unit_of)
        parts = components(reads)
    return torn, reads, [unit for part in parts for unit in part]


def _between(reads: Reads, others: list[int], groups: Container[int]) -> dict[int, int]:
    """Return the groups that another unit both reads and feeds, and that unit by group.

    The refusal of other groups could not save them.
    """
    return {
        unit: other
        for other in reversed(others)
        for unit in reads[other]
        if unit in groups and other in reads[unit]
    }


def _levels(
    reads: Reads, order: list[int], joinable: set[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the level of each unit, and for each level a node that opened it."""
    levels: dict[int, int] = {}
    causes: dict[int, int] = {}
    for unit in order:
        # Leaving the joinable nodes closes a level: later nodes can't join it any more.
        steps = (levels[read] + (read in joinable and unit not in joinable) for read in reads[unit])
        levels[unit] = max(steps, default=0)
        if unit not in joinable:
            causes.setdefault(levels[unit], unit)
    return levels, causes


def _delay(reads: Reads, order: list[int], joinable: set[int], levels: dict[int, int]) -> None:
    """Move units that read nothing in their own partition next to their first reader.

    Otherwise a value that depends on the program's inputs alone, such as a mask for the last layer,
    would be computed in the first partition and carried through all later ones.
    """
    readers: dict[int, list[int]] = {unit: [] for unit in order}
    for unit in order:
        for source in reads[unit]:
            readers[source].append(unit)
    for unit in reversed(order):
        # A reader outside any partition could be delayed itself; to stay simple, it is not.
        if readers[unit] and joinable.issuperset((unit, *readers[unit])):
            own = (s in joinable and levels[s] == levels[unit] for s in reads[unit])
            if not any(own):
                levels[unit] = min(levels[reader] for reader in readers[unit])


def joined(groups: Iterable[Sequence[T]]) -> list[list[T]]:
    """Join groups that share a member, directly or through other groups.

    Groups are returned in the order of their first members, and members in the order in which they
    were given.
    """
    graph = networkx.Graph()
    for group in groups:
        networkx.add_path(graph, group)
    place = {member: index for index, member in enumerate(graph)}
    parts = networkx.connected_components(graph)
    return [sorted(part, key=place.__getitem__) for part in parts]
