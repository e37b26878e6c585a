"""Fixes that rows of the quirks table made in a lowering."""

from __future__ import annotations

from attrs import frozen


@frozen
class Fix:
    """One row of the quirks table that acted on a method.

    Args:
        row: The name of the row.
        stage: The stage at which it acted.
        found: The nodes, inputs, buffers or outputs that it changed, by name.
        line: The line of the user's code of the first of them; empty if unknown.
    """

    row: str
    stage: str
    found: tuple[str, ...]
    line: str = ""

    def __str__(self) -> str:
        return f"{self.row} at {self.line}" if self.line else self.row
