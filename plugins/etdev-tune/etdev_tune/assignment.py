"""Assignment of units to owners at least predicted cost, by dynamic programming.

Units are visited in graph order. The cheapest owners of the first n units, for each owner of the
n-th, follow from those of the first n - 1: add the cost of the n-th, and that of a delegate's call
if the owner changes. Units of equal structure get the same owner in the end, since they are moved
together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from etdev_tune.rates import Rates
from etdev_tune.units import Key, Unit, choices


def least_cost_owners(
    units: Sequence[Unit], plugins: Sequence[str], rates: Rates
) -> dict[Key, str]:
    """Return the owners of least predicted cost, by unit.

    Args:
        units: All units of one method, in graph order.
        plugins: Plugins that may own them.
        rates: Rates of the owners.
    """
    paths: dict[str, tuple[float, tuple[str, ...]]] = {"": (0.0, ())}
    for unit in units:
        paths = _extended(paths, unit, plugins, rates)
    _, owners = min(paths.values(), key=lambda path: path[0])
    return _alike(units, owners)


def _extended(
    paths: dict[str, tuple[float, tuple[str, ...]]],
    unit: Unit,
    plugins: Sequence[str],
    rates: Rates,
) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Extend the cheapest paths by the next unit, to each of its possible owners."""
    longer = {}
    for owner in choices(unit, plugins):
        own = rates.of(unit, owner)
        if own is None and owner != unit.owner:
            continue
        call = rates.call(owner)
        cost, path = min(
            ((c + (call if before != owner else 0.0), p) for before, (c, p) in paths.items()),
            key=lambda known: known[0],
        )
        longer[owner] = (cost + (own or 0.0), (*path, owner))
    if longer:
        return longer
    cost, path = min(paths.values(), key=lambda known: known[0])
    return {unit.owner: (cost, (*path, unit.owner))}


def _alike(units: Sequence[Unit], owners: Sequence[str]) -> dict[Key, str]:
    """Give units of equal structure the owner that most of them have."""
    votes: dict[tuple[str, str], Counter[str]] = {}
    for unit, owner in zip(units, owners, strict=True):
        votes.setdefault(unit.structure, Counter())[owner] += 1
    return {unit.key: votes[unit.structure].most_common(1)[0][0] for unit in units}
