"""Tables of plain text."""

from __future__ import annotations

from attrs import field, frozen

from etdev.schema.converters import frozen_tuple

# A longer table ends with the number of rows left out.
ROWS = 12


@frozen
class Sheet:
    """A table: the heads of its columns, the cells of each row, and the line above it."""

    columns: tuple[str, ...] = field(converter=frozen_tuple)
    rows: tuple[tuple[str, ...], ...] = field(converter=frozen_tuple)
    title: str = ""


def size(count: int | None) -> str:
    """Return a number of bytes for people: `88.1 MiB`."""
    if count is None:
        return "unbounded"
    value, unit = float(count), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
