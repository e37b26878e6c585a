"""Values that notebooks and rich show as tables."""

from __future__ import annotations

import importlib
from typing import Any


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
        # Only here, since programs that read a plan need no rich.
        from rich.console import Group

        # By name, since presenters stand on top and know the values.
        presenters = importlib.import_module("etdev.report.presenters")
        return Group(*(sheet.first() for sheet in presenters.sheets(self)))
