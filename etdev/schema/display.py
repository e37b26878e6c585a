"""Values that notebooks and rich show as tables."""

from __future__ import annotations

from typing import Any


class Displayed:
    """A value that notebooks and rich show as tables."""

    __slots__ = ()

    @property
    def summary(self) -> str:
        """The value in a few words."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.summary}>"

    def _repr_html_(self) -> str:
        html: str = self.__rich__()._repr_mimebundle_((), ())["text/html"]
        return html

    def __rich__(self) -> Any:
        # Only here, since presenters import the values, and programs that read a plan need no rich.
        from etdev.schema.report import presenters, rich_table

        return rich_table.rich(presenters.sheets(self))
