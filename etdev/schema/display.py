"""Values that notebooks and rich show as tables; `etdev.schema.report` makes the tables."""

from __future__ import annotations

from functools import singledispatch
from typing import Any


@singledispatch
def in_html(value: object) -> str | None:
    """Return the tables of a value in HTML; None if its class has none."""
    return None


@singledispatch
def in_rich(value: object) -> Any:
    """Return the tables of a value for rich, or the value as text if its class has none."""
    return repr(value)


class Displayed:
    """A value that notebooks and rich show as tables."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return in_html(self)

    def __rich__(self) -> Any:
        return in_rich(self)
