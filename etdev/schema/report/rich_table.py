"""Sheets as tables of rich, which fit the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import console as terminal
from rich.table import Table
from rich.text import Text

from etdev.schema.report.sheet import ROWS, Sheet


class FittingTable(Table):
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


def rich(sheets: Iterable[Sheet]) -> terminal.Group:
    """Return several tables for rich."""
    return terminal.Group(*(rich_table(sheet, ROWS) for sheet in sheets))


def table(*columns: str, title: str | None = None) -> Table:
    """Make an empty table in etdev's style."""
    rows = FittingTable(*columns, title=title, title_justify="left", header_style="bold", box=None)
    for column in rows.columns:
        column.overflow = "fold"
    return rows


def rich_table(sheet: Sheet, limit: int | None, hint: str = "") -> Table:
    """The table of a sheet; the line that counts further rows ends with a hint."""
    made = table(*sheet.columns, title=sheet.title or None)
    rows, more = sheet.shown(limit)
    for row in rows:
        made.add_row(*map(_plain, row))
    if more:
        made.add_row(f"{more}{hint}")
    return made


def _plain(text: str) -> Text:
    """A cell as it is: `[abc]` is a glob, not a style."""
    return Text(text)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)
