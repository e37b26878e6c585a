"""Colours of owners, in the page and in Model Explorer."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

from etdev.schema.pins import PORTABLE
from etdev.schema.reasons import FOREIGN

# Okabe and Ito's palette, which colour-blind readers can tell apart, too.
_COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#f0e442")
NEUTRAL = "#bbbbbb"
_UNOWNED = (PORTABLE, FOREIGN.code)


def colours_of(plugins: Iterable[str], owners: Iterable[str] = ()) -> dict[str, str]:
    """Return a colour for each owner of a plan; nodes without a backend are neutral.

    Args:
        plugins: The plugins that were asked, in claim order.
        owners: The plugins that own nodes; those that were not asked come last.
    """
    names = dict.fromkeys([*plugins, *(owner for owner in owners if owner not in _UNOWNED)])
    coloured = dict(zip(names, cycle(_COLOURS), strict=False))
    return {**coloured, **dict.fromkeys(_UNOWNED, NEUTRAL)}
