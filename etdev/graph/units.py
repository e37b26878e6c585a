"""Nodes of a graph joined to units that run together, and the cycles between units.

Works on bare numbers, as convex.py does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import define, field


@define
class Units:
    """A graph in which joined nodes are one node, its units."""

    inputs: Sequence[Sequence[int]]
    unit_of: list[int] = field(init=False)
    # For units of several nodes only: there may be millions of single nodes.
    _joined: dict[int, list[int]] = field(factory=dict, init=False)
    _reads: dict[int, dict[int, None]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.unit_of = list(range(len(self.inputs)))

    def __iter__(self) -> Iterator[int]:
        """Iterate over all units, ascending."""
        return iter([unit for node, unit in enumerate(self.unit_of) if node == unit])

    def members(self, unit: int) -> Sequence[int]:
        """Return the nodes of a unit, ascending."""
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

    def reads(self, unit: int) -> dict[int, None]:
        """Return the other units that a unit reads, ascending."""
        if (known := self._reads.get(unit)) is not None:
            return known
        of, inputs = self.unit_of, self.inputs
        sources = {of[source] for node in self.members(unit) for source in inputs[node]}
        sources.discard(unit)
        self._reads[unit] = ordered = dict.fromkeys(sorted(sources))
        return ordered

    @property
    def single(self) -> bool:
        """True if every unit is one node, so that numbers are an order without a cycle."""
        return not self._joined


def components(units: Units, only: Iterable[int] | None = None) -> list[list[int]]:
    """Return the strongly connected components, sources first (Tarjan, without recursion)."""
    roots = sorted(units if only is None else only)
    scope = None if only is None else set(roots)
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    components: list[list[int]] = []
    for root in roots:
        work = [] if root in number else [(root, iter(units.reads(root)))]
        while work:
            unit, reads = work[-1]
            if unit not in number:
                number[unit] = low[unit] = len(number)
                path.append(unit)
            for source in reads:
                if scope is not None and source not in scope:
                    continue
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
