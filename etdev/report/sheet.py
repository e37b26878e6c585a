"""Tables of plain text."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from etdev.schema.converters import frozen_tuple

if TYPE_CHECKING:
    from rich import console as terminal

# A longer table ends with the number of rows left out.
ROWS = 12


@frozen
class Sheet:
    """A table.

    Args:
        columns: The heads of its columns.
        rows: The cells of each row.
        title: The line above it.
    """

    columns: tuple[str, ...] = field(converter=frozen_tuple)
    rows: tuple[tuple[str, ...], ...] = field(converter=frozen_tuple)
    title: str = ""

    def first(self, limit: int = ROWS, hint: str = "") -> Sheet:
        """Return the first rows, and a row that counts the others and ends with a hint."""
        if len(self.rows) <= limit:
            return self
        more = f"… and {len(self.rows) - limit} more{hint}"
        return evolve(self, rows=(*self.rows[:limit], (more,)))

    def __rich_console__(
        self, console: terminal.Console, options: terminal.ConsoleOptions
    ) -> terminal.RenderResult:
        """Draw a table, or a list of cells where some word is too long for its column."""
        # Only here, since programs that read a plan need no rich.
        from rich.table import Table
        from rich.text import Text

        columns = zip_longest(self.columns, *self.rows, fillvalue="")
        # A cell has a blank on either side.
        widths = [2 + max(map(len, " ".join(cells).split()), default=0) for cells in columns]
        if sum(widths) <= options.max_width:
            # As text, since `[abc]` is a glob and not a style, and `:a:` no emoji.
            title = Text(self.title) if self.title else None
            table = Table(title=title, title_justify="left", header_style="bold", box=None)
            for head in self.columns:
                table.add_column(Text(head), overflow="fold")
            for row in self.rows:
                table.add_row(*map(Text, row))
            yield table
            return
        if self.title:
            yield Text(self.title, style="italic")
        for row in self.rows:
            for index, (head, cell) in enumerate(zip(self.columns, row, strict=False)):
                if cell:
                    yield Text(f"{'   ' if index else ' '}{head} {cell}", overflow="fold")
