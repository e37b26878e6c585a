"""Numbers, lists of names and sizes in words, for messages and tables."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: `1 node`, `2 nodes`."""
    return f"{number} {noun if number == 1 else several or f'{noun}s'}"


def listed(names: Sequence[str], most: int | None) -> str:
    """Return the first names and the number of the rest: `a, b and 3 more`; `-` without any."""
    shown = names[:most]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return (", ".join(shown) or "-") + more


def size(count: int | None) -> str:
    """Return a number of bytes for people: `88.1 MiB`."""
    if count is None:
        return "unbounded"
    # Only here, since programs that read a plan need no rich.
    from rich.filesize import pick_unit_and_suffix

    unit, suffix = pick_unit_and_suffix(count, ["B", "KiB", "MiB", "GiB", "TiB"], 1024)
    return f"{count} B" if unit == 1 else f"{count / unit:.1f} {suffix}"
