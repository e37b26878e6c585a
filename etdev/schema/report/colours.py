"""Colours of owners: the same on the page, in notebooks and in Model Explorer."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

from etdev.schema.pins import PORTABLE
from etdev.schema.reasons import FOREIGN

# Okabe and Ito's: told apart by people who don't see red or green, too.
_COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#f0e442")
NEUTRAL = "#bbbbbb"
UNOWNED = (PORTABLE, FOREIGN.code)


def colours_of(plugins: Iterable[str], owners: Iterable[str]) -> dict[str, str]:
    """A colour for each owner of a plan, by name.

    Args:
        plugins: The plugins that were asked, in claim order.
        owners: Who has nodes; those that were not asked come last.
    """
    asked = colours(dict.fromkeys([*plugins, *(o for o in owners if o not in UNOWNED)]))
    return {**asked, **dict.fromkeys(UNOWNED, NEUTRAL)}


def colours(plugins: Iterable[str]) -> dict[str, str]:
    """A colour for each plugin, by name, in claim order; what no plugin has is neutral."""
    return dict(zip(plugins, cycle(_COLOURS), strict=False))
