"""Refusal of groups until no unit waits for itself."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from etdev.graph.units import Units, components


def tear(units: Units, group_of: dict[int, int], torn: dict[int, int]) -> list[list[int]]:
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
        if unit in group_of and _contains(units.reads(unit), other)
    }


def _contains(ascending: Sequence[int], number: int) -> bool:
    place = bisect_left(ascending, number)
    return place < len(ascending) and ascending[place] == number


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
