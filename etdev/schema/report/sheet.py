"""Tables of plain text, and values that notebooks and rich show as such."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from etdev.schema.converters import frozen_tuple

if TYPE_CHECKING:
    from rich import console as terminal

# A longer table ends with the number of rows left out.
ROWS = 12


@frozen
class Sheet:
    """A table: the heads of its columns, the cells of each row, and the line above it."""

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


class Displayed:
    """A value that notebooks and rich show as tables, and whose `summary` is a few words."""

    __slots__ = ()

    def __repr__(self: Any) -> str:
        return f"<{type(self).__name__} {self.summary}>"

    def _repr_html_(self: Any) -> str:
        from rich.jupyter import JupyterMixin

        html: str = JupyterMixin._repr_mimebundle_(self, (), ())["text/html"]
        return html

    def __rich__(self) -> Any:
        # Only here, since presenters import the values, and programs that read a plan need no rich.
        from rich.console import Group

        from etdev.schema.report import presenters

        return Group(*(sheet.first() for sheet in presenters.sheets(self)))


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
