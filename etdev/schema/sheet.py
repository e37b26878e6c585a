"""Sheets: tables as plain cells, which a terminal, a notebook and rich show each in its own way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from attrs import field, frozen

from etdev.schema.converters import frozen_tuple

if TYPE_CHECKING:
    from rich.console import Group

# Longer tables end with the number of rows that are left out.
ROWS = 12


@frozen
class Sheet:
    """A table.

    Args:
        columns: Their heads.
        rows: Cells of each row.
        title: What stands above it.
    """

    columns: tuple[str, ...] = field(converter=frozen_tuple)
    rows: tuple[tuple[str, ...], ...] = field(converter=frozen_tuple)
    title: str = ""

    def shown(self, limit: int | None) -> tuple[Sequence[tuple[str, ...]], str]:
        """The rows up to a limit, and a line that counts the others; empty if there are none."""
        rows = self.rows if limit is None else self.rows[:limit]
        more = len(self.rows) - len(rows)
        return rows, f"… and {more} more" if more else ""

    def html(self, limit: int | None = ROWS) -> str:
        """The table in HTML, without scripts or styles of its own."""
        rows, more = self.shown(limit)
        lines = [f"<table><caption>{escape(self.title)}</caption>" if self.title else "<table>"]
        lines.append(f"<thead><tr>{_cells('th', self.columns)}</tr></thead><tbody>")
        lines += [f"<tr>{_cells('td', row)}</tr>" for row in rows]
        if more:
            lines.append(f'<tr><td colspan="{len(self.columns)}">{escape(more)}</td></tr>')
        return "\n".join([*lines, "</tbody></table>"])


def html(sheets: Iterable[Sheet]) -> str:
    """Several tables in HTML."""
    return "\n".join(sheet.html() for sheet in sheets)


def rich(sheets: Iterable[Sheet]) -> Group:
    """Several tables for rich."""
    # rich is no part of what every program needs that reads a plan.
    from rich.console import Group

    from etdev.schema.rich_table import rich_table

    return Group(*(rich_table(sheet, ROWS) for sheet in sheets))


def size(count: int | None) -> str:
    """Write a number of bytes for people: `88.1 MiB`."""
    if count is None:
        return "unbounded"
    value, unit = float(count), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def _cells(kind: str, texts: Iterable[str]) -> str:
    return "".join(f"<{kind}>{escape(text)}</{kind}>" for text in texts)
