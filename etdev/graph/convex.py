"""Convex partitions of a graph, as few as possible, found in linear time.

Works on bare numbers, so that it can be tested without torch. They must be topological: node n
reads smaller numbers only, as in `MethodGraph.inputs`. Otherwise a single node could close a cycle,
and `_join_groups` would find no group to refuse.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from attrs import define, field, frozen

T = TypeVar("T", bound=Hashable)


@frozen
class Convexity:
    """Partitions, and the groups that no partition can hold.

    Args:
        partitions: Node numbers, ascending, in an order in which the partitions can run.
        torn: Groups (by position) that had to be refused, each with a node on a path that leaves
            the group and comes back through nodes that can't join it.
        split_by: Per partition the node that kept it apart from an earlier one; None for the first.
    """

    partitions: tuple[tuple[int, ...], ...]
    torn: dict[int, int]
    split_by: tuple[int | None, ...]


@define
class Units:
    """A graph in which joined nodes are one node, its units."""

    inputs: Sequence[Sequence[int]]
    unit_of: list[int] = field(init=False)
    # For units of several nodes only: there may be millions of single nodes.
    joined: dict[int, list[int]] = field(factory=dict, init=False)
    _reads: dict[int, dict[int, None]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.unit_of = list(range(len(self.inputs)))

    def __iter__(self) -> Iterator[int]:
        """Iterate over all units, ascending."""
        return iter([unit for node, unit in enumerate(self.unit_of) if node == unit])

    def members(self, unit: int) -> Sequence[int]:
        """Return the nodes of a unit, ascending."""
        return self.joined.get(unit) or (unit,)

    def join(self, nodes: Iterable[int]) -> int:
        """Join the units of some nodes; the joined unit has the number of its smallest node."""
        units = sorted({self.unit_of[node] for node in nodes})
        first = units[0]
        if len(units) == 1:
            return first
        members = units
        if not self.joined.keys().isdisjoint(units):
            members = sorted(node for unit in units for node in self.members(unit))
        for unit in units:
            self.joined.pop(unit, None)
        self.joined[first] = members
        for node in members:
            self.unit_of[node] = first
        self._reads.clear()
        return first

    def split(self, unit: int) -> None:
        """Undo a join: every node is its own unit again."""
        for node in self.joined.pop(unit):
            self.unit_of[node] = node
        self._reads.clear()

    def reads(self, unit: int) -> dict[int, None]:
        """Return the other units that a unit reads, ascending."""
        if (known := self._reads.get(unit)) is not None:
            return known
        of, inputs = self.unit_of, self.inputs
        sources = {of[source] for node in self.members(unit) for source in inputs[node]}
        sources.discard(unit)
        self._reads[unit] = ordered = dict.fromkeys(sorted(sources))
        return ordered


def components(units: Units) -> list[list[int]]:
    """Return the strongly connected components, sources first (Tarjan, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    components: list[list[int]] = []
    for root in units:
        work = [] if root in number else [(root, iter(units.reads(root)))]
        while work:
            unit, reads = work[-1]
            if unit not in number:
                number[unit] = low[unit] = len(number)
                path.append(unit)
            for source in reads:
                if source not in number:
                    work.append((source, iter(units.reads(source))))
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
                    low.update(dict.fromkeys(component, len(units.inputs)))
    return components


def find_partitions(
    inputs: Sequence[Sequence[int]],
    groups: Sequence[Sequence[int]],
    blocks: Iterable[Sequence[int]] = (),
    merge: bool = True,
) -> Convexity:
    """Join groups into the fewest convex partitions.

    A node's level counts how often the longest path to it passes from joinable to other nodes.
    Joinable nodes of one level never depend on each other through others, so each level is one
    partition, and no smaller number can do, since a path that visits k levels needs k partitions.
    One walk over the graph for the levels, one for its strongly connected components.

    Args:
        inputs: For each node the nodes it reads, all with smaller numbers.
        groups: Disjoint atomic groups of joinable nodes.
        blocks: Disjoint sets of other nodes that are one unit already (earlier partitions).
        merge: False leaves each group a partition of its own.

    Returns:
        The partitions; together with the blocks they form no cycle.
    """
    units = Units(inputs)
    for block in blocks:
        units.join(block)
    torn: dict[int, int] = {}
    joinable, order = _join_groups(units, groups, torn)
    if not merge:
        single = [tuple(units.members(unit)) for unit in order if unit in joinable]
        return Convexity(tuple(single), torn, (None,) * len(single))
    levels, causes = _levels(units, order, joinable)
    _delay(units, order, joinable, levels)
    by_level: dict[int, list[int]] = {}
    split_by: dict[int, int | None] = {}
    for unit in order:
        if unit in joinable:
            by_level.setdefault(levels[unit], []).extend(units.members(unit))
            split_by.setdefault(levels[unit], causes.get(levels[unit]))
    ranks = sorted(by_level)
    return Convexity(
        tuple(tuple(sorted(by_level[rank])) for rank in ranks),
        torn,
        tuple(split_by[rank] if rank != ranks[0] else None for rank in ranks),
    )


def _join_groups(
    units: Units, groups: Sequence[Sequence[int]], torn: dict[int, int]
) -> tuple[set[int], list[int]]:
    """Join each group; where units then wait for each other, merge or refuse groups.

    A cycle of groups only becomes one bigger group. A cycle through other nodes tears a group:
    groups that another unit both reads and feeds are refused, else the one with the widest span,
    until no cycle is left. The refused groups are added to `torn`.

    Returns:
        The units that are groups, or several merged; and all units so that each comes after what it
        reads.
    """
    group_of = {units.join(group): index for index, group in enumerate(groups)}
    if not units.joined:
        # Every unit is one node, and their numbers are an order without a cycle.
        return set(group_of), list(units)
    parts = components(units)
    while mixed := [part for part in parts if len(part) > 1 and not group_of.keys() >= {*part}]:
        for part in mixed:
            others = [unit for unit in part if unit not in group_of]
            lost = _between(units, others, group_of) or {_widest(units, part, group_of): others[0]}
            for unit, blocker in lost.items():
                torn[group_of.pop(unit)] = blocker
                units.split(unit)
        parts = components(units)
    joinable = set(group_of)
    cycles = [part for part in parts if len(part) > 1]
    for cycle in cycles:
        joinable -= set(cycle)
        joinable.add(units.join(node for unit in cycle for node in units.members(unit)))
    if cycles:
        parts = components(units)
    return joinable, [unit for part in parts for unit in part]


def _between(units: Units, others: list[int], group_of: dict[int, int]) -> dict[int, int]:
    """Return the groups that another unit both reads and feeds, and that unit by group.

    The refusal of other groups could not save them.
    """
    return {
        unit: other
        for other in reversed(others)
        for unit in units.reads(other)
        if unit in group_of and other in units.reads(unit)
    }


def _widest(units: Units, component: list[int], group_of: dict[int, int]) -> int:
    """Return the group with the widest span; among several, the one in the middle.

    Where groups overlap like tiles, the rest then falls into halves. Taking them off one end would
    need as many rounds as there are groups.
    """
    # Only a group of several nodes can close a cycle: the graph itself has none.
    wide = {unit: units.members(unit) for unit in component if unit in group_of}
    spans = {unit: nodes[-1] - nodes[0] for unit, nodes in wide.items() if len(nodes) > 1}
    most = max(spans.values())
    widest = [unit for unit in sorted(spans) if spans[unit] == most]
    return widest[len(widest) // 2]


def _levels(
    units: Units, order: list[int], joinable: set[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the level of each unit, and for each level a node that opened it."""
    levels: dict[int, int] = {}
    causes: dict[int, int] = {}
    for unit in order:
        level = 0
        for source in units.reads(unit):
            # Leaving the joinable nodes closes a level: later nodes can't join it any more.
            step = source in joinable and unit not in joinable
            if levels[source] + step > level:
                level = levels[source] + step
        levels[unit] = level
        if unit not in joinable:
            causes.setdefault(level, units.members(unit)[0])
    return levels, causes


def _delay(units: Units, order: list[int], joinable: set[int], levels: dict[int, int]) -> None:
    """Move units that read nothing in their own partition next to their first reader.

    Otherwise a value that depends on the program's inputs alone, such as a mask for the last layer,
    would be computed in the first partition and carried through all later ones.
    """
    readers: dict[int, list[int]] = {unit: [] for unit in order}
    for unit in order:
        for source in units.reads(unit):
            readers[source].append(unit)
    for unit in reversed(order):
        # A reader outside any partition could be delayed itself; to stay simple, it is not.
        if unit not in joinable or not readers[unit]:
            continue
        if any(reader not in joinable for reader in readers[unit]):
            continue
        if any(s in joinable and levels[s] == levels[unit] for s in units.reads(unit)):
            continue
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
