"""Colours of owners, in the page and in Model Explorer."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

from etdev.schema.pins import PORTABLE
from etdev.schema.reasons import FOREIGN

# The cool half of Okabe and Ito's palette, yellow, and Tol's indigo: colour-blind readers can tell
# each pair apart. Warm colours are left to what a reader looks for, portable nodes and time.
_COLOURS = ("#56b4e9", "#009e73", "#0072b2", "#cc79a7", "#f0e442", "#332288")
_UNOWNED = {PORTABLE: "#e06a30", FOREIGN.code: "#cfcfcf"}
_INKS = "#000000", "#ffffff"


def colours_of(plugins: Iterable[str], owners: Iterable[str] = ()) -> dict[str, str]:
    """Return a colour for each owner of a plan, a warm one for portable nodes.

    Args:
        plugins: The plugins that were asked, in claim order.
        owners: The plugins that own nodes; those that were not asked come last.
    """
    names = dict.fromkeys([*plugins, *(owner for owner in owners if owner not in _UNOWNED)])
    return {**dict(zip(names, cycle(_COLOURS), strict=False)), **_UNOWNED}


def ink_on(colour: str) -> str:
    """Return black or white, whichever has the higher contrast on a colour."""
    return max(_INKS, key=lambda ink: contrast(ink, colour))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG defines it, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
