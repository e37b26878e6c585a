"""Claim orders that are tried besides the untuned one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from etdev_tune.candidate import Candidate

# With more plugins, only pairs are tried, and each plugin first.
_FEW = 3


def orders_of(names: Sequence[str]) -> list[Candidate]:
    """Return claim orders of two plugins or more, except the given one.

    Args:
        names: The plugins that claim something, in the claim order of the untuned plan.
    """
    whole = tuple(names)
    if len(whole) <= _FEW:
        orders = [o for size in range(2, len(whole) + 1) for o in permutations(whole, size)]
    else:
        orders = [*permutations(whole, 2), *(_first(name, whole) for name in whole)]
    # The longest first, since they have the most to choose from.
    orders.sort(key=lambda order: -len(order))
    return [Candidate(", ".join(o), o) for o in dict.fromkeys(orders) if o != whole]


def _first(name: str, names: Sequence[str]) -> tuple[str, ...]:
    return (name, *(other for other in names if other != name))
