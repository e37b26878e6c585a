"""The renderer of sheets for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterable

from rich import console as terminal
from rich.jupyter import JupyterMixin
from rich.table import Table
from rich.text import Text

from etdev.schema.report.sheet import ROWS, Sheet


class Tables(terminal.Group, JupyterMixin):
    """Tables, one below the other."""


def rich(sheets: Iterable[Sheet], limit: int | None = ROWS, hint: str = "") -> Tables:
    """Return sheets for rich.

    Args:
        sheets: The sheets, from top to bottom.
        limit: Most rows of a sheet; None for all.
        hint: End of the line that counts the rows left out.
    """
    return Tables(*(_table(sheet, limit, hint) for sheet in sheets))


class _FittingTable(Table):
    """A table that becomes a list of cells where some word is too long for its column."""

    def __rich_console__(
        self, console: terminal.Console, options: terminal.ConsoleOptions
    ) -> terminal.RenderResult:
        columns = [(str(column.header), [str(c) for c in column.cells]) for column in self.columns]
        # A cell has a blank on either side.
        needed = sum(2 + max(map(_longest_word, (head, *cells))) for head, cells in columns)
        if needed <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield Text(str(self.title), style="italic")
        for row in range(self.row_count):
            for index, (head, cells) in enumerate(columns):
                if cells[row]:
                    yield Text(f"{'   ' if index else ' '}{head} {cells[row]}", overflow="fold")


def _table(sheet: Sheet, limit: int | None, hint: str) -> Table:
    table = _FittingTable(
        *sheet.columns,
        title=sheet.title or None,
        title_justify="left",
        header_style="bold",
        box=None,
    )
    for column in table.columns:
        column.overflow = "fold"
    for row in sheet.rows[:limit]:
        # As text, since `[abc]` is a glob and not a style.
        table.add_row(*map(Text, row))
    if limit is not None and len(sheet.rows) > limit:
        table.add_row(f"… and {len(sheet.rows) - limit} more{hint}")
    return table


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)
