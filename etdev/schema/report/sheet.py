"""Tables of plain text, which a terminal and a notebook render in their own ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from attrs import field, frozen

from etdev.schema.converters import frozen_tuple

# A longer table ends with the number of rows left out.
ROWS = 12

# As on the page. A notebook may be light or dark, so that only lines have a colour.
_TABLE = 'style="border-collapse: collapse; margin: 8px 0 16px; font-size: 13px"'
_CAPTION = 'style="caption-side: top; text-align: left; font-weight: 650; padding: 4px 0"'
_LINE = "text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid rgb(128 128 128 / 35%)"
_HEAD = f'style="{_LINE}; font-size: 12px; opacity: 0.7"'
_CELL = f'style="{_LINE}; vertical-align: top"'
_MARK = (
    'style="display: inline-block; width: 12px; height: 12px; border-radius: 3px; '
    'margin-right: 8px; background: {}"'
)


@frozen
class Sheet:
    """A table.

    Args:
        columns: Their heads.
        rows: Cells of each row.
        title: The line above the table.
    """

    columns: tuple[str, ...] = field(converter=frozen_tuple)
    rows: tuple[tuple[str, ...], ...] = field(converter=frozen_tuple)
    title: str = ""

    def shown(self, limit: int | None) -> tuple[Sequence[tuple[str, ...]], str]:
        """Return the rows up to a limit, and a line that counts the rest; empty without a rest."""
        rows = self.rows if limit is None else self.rows[:limit]
        more = len(self.rows) - len(rows)
        return rows, f"… and {more} more" if more else ""

    def html(self, colours: Mapping[str, str]) -> str:
        """Return the table in HTML, without scripts.

        Args:
            colours: Colours of owners; one stands before each name in a column `owner`.
        """
        rows, more = self.shown(ROWS)
        title = f"<caption {_CAPTION}>{escape(self.title)}</caption>" if self.title else ""
        heads = "".join(f"<th {_HEAD}>{escape(column)}</th>" for column in self.columns)
        lines = [f"<table {_TABLE}>{title}<thead><tr>{heads}</tr></thead><tbody>"]
        lines += [f"<tr>{''.join(self._cells(row, colours))}</tr>" for row in rows]
        if more:
            lines.append(f'<tr><td colspan="{len(self.columns)}" {_CELL}>{escape(more)}</td></tr>')
        return "\n".join([*lines, "</tbody></table>"])

    def _cells(self, row: Sequence[str], colours: Mapping[str, str]) -> Iterator[str]:
        for column, text in zip(self.columns, row, strict=False):
            colour = colours.get(text) if column == "owner" else None
            mark = f"<span {_MARK.format(colour)}></span>" if colour else ""
            yield f"<td {_CELL}>{mark}{escape(text)}</td>"


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
