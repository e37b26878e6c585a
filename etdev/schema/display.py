"""Tables that notebooks and rich show for a value; `etdev.schema.report` registers them."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, Protocol


class Tables(Protocol):
    """The tables of a value."""

    def html(self) -> str:
        """Return the tables in HTML."""

    def rich(self) -> Any:
        """Return the tables for rich."""


@singledispatch
def tables_of(value: object) -> Tables | None:
    """Return the tables of a value; None if none are registered for its class."""
    return None


class Displayed:
    """A value that notebooks and rich show as tables."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        tables = tables_of(self)
        return tables.html() if tables else None

    def __rich__(self) -> Any:
        tables = tables_of(self)
        return tables.rich() if tables else repr(self)
