"""Convex partitions of a graph: the fewest, and in linear time.

Works on bare numbers, so that it can be tested without torch. It relies on them being topological:
node n reads smaller numbers only, as `MethodGraph.inputs` has them. Otherwise a single node could
close a cycle, and `_join_groups` would find no group to refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import define, field, frozen


@frozen
class Convexity:
    """Partitions, and the groups that no partition could hold.

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

    A node's level counts how often the longest path to it passes from joinable nodes to others.
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
    units = _Units(inputs)
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


@define
class _Units:
    """Nodes joined to units: the graph in which each unit is one node."""

    inputs: Sequence[Sequence[int]]
    unit_of: list[int] = field(init=False)
    # Of the units of several nodes: there may be millions of the others.
    _joined: dict[int, list[int]] = field(factory=dict, init=False)
    _reads: dict[int, list[int]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.unit_of = list(range(len(self.inputs)))

    def __iter__(self) -> Iterator[int]:
        """All units, ascending."""
        return iter([unit for node, unit in enumerate(self.unit_of) if node == unit])

    def members(self, unit: int) -> Sequence[int]:
        """The nodes of a unit, ascending."""
        return self._joined.get(unit) or (unit,)

    def join(self, nodes: Iterable[int]) -> int:
        """Join the units of some nodes; the joined unit has the number of its smallest node."""
        units = sorted({self.unit_of[node] for node in nodes})
        first = units[0]
        if len(units) == 1:
            return first
        members = units
        if not self._joined.keys().isdisjoint(units):
            members = sorted(node for unit in units for node in self.members(unit))
        for unit in units:
            self._joined.pop(unit, None)
        self._joined[first] = members
        for node in members:
            self.unit_of[node] = first
        self._reads.clear()
        return first

    def split(self, unit: int) -> None:
        """Undo a join: every node is its own unit again."""
        for node in self._joined.pop(unit):
            self.unit_of[node] = node
        self._reads.clear()

    def reads(self, unit: int) -> list[int]:
        """The other units that a unit reads, ascending."""
        if (known := self._reads.get(unit)) is not None:
            return known
        of, inputs = self.unit_of, self.inputs
        sources = {of[source] for node in self.members(unit) for source in inputs[node]}
        sources.discard(unit)
        self._reads[unit] = ordered = sorted(sources)
        return ordered

    @property
    def single(self) -> bool:
        """Whether every unit is one node, so that there is no cycle and numbers are an order."""
        return not self._joined


def _join_groups(
    units: _Units, groups: Sequence[Sequence[int]], torn: dict[int, int]
) -> tuple[set[int], list[int]]:
    """Join each group; where units then wait for each other, merge or refuse groups.

    A cycle of groups only becomes one bigger group. A cycle through other nodes tears a group: the
    one with the widest span in it is refused, until no cycle is left.

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
    components = _tear(units, group_of, torn)
    joinable, merged = set(group_of), False
    for component in components:
        if len(component) > 1:
            first = units.join(node for unit in component for node in units.members(unit))
            joinable -= set(component)
            joinable.add(first)
            merged = True
    if merged:
        components = _components(units)
    return joinable, [unit for component in components for unit in component]


def _tear(units: _Units, group_of: dict[int, int], torn: dict[int, int]) -> list[list[int]]:
    """Refuse groups until no cycle has anything but groups.

    Args:
        units: The units; the refused ones are split.
        group_of: The positions of the groups by unit; the refused ones are removed.
        torn: Filled with the refused groups, see `Convexity`.

    Returns:
        The strongly connected components of all units, sources first.
    """
    components = _components(units)
    pending = components
    while True:
        again: list[int] = []
        for component in pending:
            if len(component) == 1:
                continue
            others = [unit for unit in component if unit not in group_of]
            if not others:
                continue
            # Only a group of several nodes can close a cycle: the graph itself has none.
            wide = {u: units.members(u) for u in component if u in group_of}
            spans = ((nodes[-1] - nodes[0], u) for u, nodes in wide.items() if len(nodes) > 1)
            _, worst = max(spans)
            torn[group_of.pop(worst)] = others[0]
            again += [unit for unit in component if unit != worst] + [*units.members(worst)]
            units.split(worst)
        if not again:
            break
        pending = _components(units, again)
    return _components(units) if torn else components


def _components(units: _Units, only: list[int] | None = None) -> list[list[int]]:
    """Strongly connected components of the units, sources first (Tarjan, without recursion)."""
    scope = None if only is None else set(only)
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    components: list[list[int]] = []
    for root in units if only is None else sorted(only):
        if root in number:
            continue
        number[root] = low[root] = len(number)
        path.append(root)
        on_path.add(root)
        work = [(root, iter(units.reads(root)))]
        while work:
            unit, reads = work[-1]
            for source in reads:
                if scope is not None and source not in scope:
                    continue
                if source not in number:
                    number[source] = low[source] = len(number)
                    path.append(source)
                    on_path.add(source)
                    work.append((source, iter(units.reads(source))))
                    break
                if source in on_path:
                    low[unit] = min(low[unit], number[source])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[unit])
                if low[unit] == number[unit]:
                    at = _last(path, unit)
                    components.append(sorted(path[at:]))
                    on_path.difference_update(path[at:])
                    del path[at:]
    return components


def _last(path: list[int], unit: int) -> int:
    """Position of a unit that is near the end of a path."""
    position = len(path) - 1
    while path[position] != unit:
        position -= 1
    return position


def _levels(
    units: _Units, order: list[int], joinable: set[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Level of each unit, and per level a node that opened it."""
    levels: dict[int, int] = {}
    causes: dict[int, int] = {}
    for unit in order:
        level = 0
        for source in units.reads(unit):
            # Leaving the joinable nodes closes a level: what comes after can't join it any more.
            step = source in joinable and unit not in joinable
            if levels[source] + step > level:
                level = levels[source] + step
        levels[unit] = level
        if unit not in joinable:
            causes.setdefault(level, units.members(unit)[0])
    return levels, causes


def _delay(units: _Units, order: list[int], joinable: set[int], levels: dict[int, int]) -> None:
    """Move units that nothing in their own partition feeds next to their first reader.

    Otherwise what depends on the program's inputs alone, such as a mask used by the last layer,
    would be computed in the first partition and carried through all others.
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
