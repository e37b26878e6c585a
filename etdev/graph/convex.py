"""The fewest convex partitions of a graph, found in linear time.

Works on bare numbers, so that it can be tested without torch. They must be topological: node n
reads smaller numbers only, as in `MethodGraph.inputs`. Otherwise a single node could close a cycle,
and `_join_groups` would find no group to refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from etdev.graph.units import Units, components


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
    until no cycle is left.

    Args:
        units: The units, each a node before; changed in place.
        groups: Disjoint groups.
        torn: Filled with the refused groups, see `Convexity`.

    Returns:
        The units that are groups, or several merged; and all units so that each comes after what it
        reads.
    """
    group_of = {units.join(group): index for index, group in enumerate(groups)}
    if units.single:
        return set(group_of), list(units)
    parts = _tear(units, group_of, torn)
    joinable = set(group_of)
    cycles = [component for component in parts if len(component) > 1]
    for cycle in cycles:
        joinable -= set(cycle)
        joinable.add(units.join(node for unit in cycle for node in units.members(unit)))
    if cycles:
        parts = components(units)
    return joinable, [unit for component in parts for unit in component]


def _tear(units: Units, group_of: dict[int, int], torn: dict[int, int]) -> list[list[int]]:
    """Refuse groups until every cycle consists of groups only.

    Args:
        units: The units; the refused ones are split.
        group_of: The positions of the groups by unit; the refused ones are removed.
        torn: Filled with the refused groups, see `Convexity`.

    Returns:
        The strongly connected components of all units, sources first.
    """
    parts = components(units)
    pending = parts
    while True:
        again: list[int] = []
        for component in pending:
            if len(component) == 1:
                continue
            others = [unit for unit in component if unit not in group_of]
            if not others:
                continue
            lost = _between(units, others, group_of) or {
                _widest(units, component, group_of): others[0]
            }
            again += [unit for unit in component if unit not in lost]
            for unit, blocker in lost.items():
                torn[group_of.pop(unit)] = blocker
                again += units.members(unit)
                units.split(unit)
        if not again:
            break
        pending = components(units, again)
    return components(units) if torn else parts


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
