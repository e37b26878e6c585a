"""Convex partitions of a graph, as few as possible, found in linear time.

Works on bare numbers, so that it can be tested without torch. They must be topological: node n
reads smaller numbers only, as in `MethodGraph.inputs`. Otherwise a single node could close a cycle,
and there would be no group to refuse.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

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
    unit_of = list(range(len(inputs)))
    for nodes in (*blocks, *groups):
        _join(unit_of, nodes)
    torn, reads, order = _join_groups(inputs, groups, unit_of)
    joinable = {unit_of[node] for i, group in enumerate(groups) if i not in torn for node in group}
    if merge:
        levels, causes = _levels(reads, order, joinable)
        _delay(reads, order, joinable, levels)
    else:
        levels, causes = {unit: place for place, unit in enumerate(order)}, {}
    by_level: dict[int, list[int]] = {}
    for node, unit in enumerate(unit_of):
        if unit in joinable:
            by_level.setdefault(levels[unit], []).append(node)
    ranks = sorted(by_level)
    return Convexity(
        tuple(tuple(by_level[rank]) for rank in ranks),
        torn,
        tuple(causes.get(rank) if rank != ranks[0] else None for rank in ranks),
    )


def _join(unit_of: list[int], nodes: Sequence[int]) -> None:
    first = min(nodes)
    for node in nodes:
        unit_of[node] = first


def _reads(inputs: Sequence[Sequence[int]], unit_of: Sequence[int]) -> Reads:
    reads: dict[int, dict[int, None]] = {unit: {} for unit in unit_of}
    for node, unit in enumerate(unit_of):
        for source in inputs[node]:
            if unit_of[source] != unit:
                reads[unit][unit_of[source]] = None
    return {unit: sorted(sources) for unit, sources in reads.items()}


def components(reads: Reads) -> list[list[int]]:
    """Return the strongly connected components, sources first (Tarjan, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    components: list[list[int]] = []
    for root in reads:
        work = [] if root in number else [(root, iter(reads[root]))]
        while work:
            unit, sources = work[-1]
            if unit not in number:
                number[unit] = low[unit] = len(number)
                path.append(unit)
            for source in sources:
                if source not in number:
                    work.append((source, iter(reads[source])))
                    break
                low[unit] = min(low[unit], low[source])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[unit])
                if low[unit] == number[unit]:
                    component = [path.pop()]
                    while component[-1] != unit:
                        component.append(path.pop())
                    components.append(sorted(component))
                    # Units that read it later are in components of their own.
                    low.update(dict.fromkeys(component, len(reads)))
    return components


def _join_groups(
    inputs: Sequence[Sequence[int]], groups: Sequence[Sequence[int]], unit_of: list[int]
) -> tuple[dict[int, int], Reads, list[int]]:
    """Merge or refuse groups that wait for each other.

    A cycle of groups only becomes one bigger group. A cycle through other nodes tears a group:
    groups that another unit both reads and feeds are refused, else the one with the widest span,
    until no cycle is left.

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
            wide = {unit: groups[group_of[unit]] for unit in part if unit in group_of}
            lost = _between(reads, others, wide) or {_widest(wide): others[0]}
            for unit, blocker in lost.items():
                torn[group_of.pop(unit)] = blocker
                for node in wide[unit]:
                    unit_of[node] = node
        for part in cycles if not mixed else ():
            _join(unit_of, [node for unit in part for node in groups[group_of[unit]]])
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


def _widest(groups: Mapping[int, Sequence[int]]) -> int:
    """Return the group with the widest span; among several, the one in the middle.

    Where groups overlap like tiles, the rest then falls into halves. Taking them off one end would
    need as many rounds as there are groups.
    """
    spans = {unit: max(nodes) - min(nodes) for unit, nodes in groups.items()}
    most = max(spans.values())
    widest = [unit for unit in sorted(spans) if spans[unit] == most]
    return widest[len(widest) // 2]


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
    leader: dict[T, T] = {}

    def find(member: T) -> T:
        while leader[member] != member:
            # Each walk shortens the path for the next one.
            leader[member] = leader[leader[member]]
            member = leader[member]
        return member

    for group in groups:
        for member in group:
            leader.setdefault(member, member)
            leader[find(member)] = find(group[0])
    members: dict[T, list[T]] = {}
    for member in leader:
        members.setdefault(find(member), []).append(member)
    return list(members.values())
