"""The output of a command on stdout: lines, tables or a JSON document."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.console import Console

from etdev.cli.options import given
from etdev.cli.streams import plain, results
from etdev.report.sheet import ROWS, Sheet

# A pipe gets wide tables, since cells folded at 80 columns can't be searched.
_PIPED = 160


def report(
    data: Callable[[], Mapping[str, Any]], parts: Iterable[Sheet | str], every: bool = False
) -> None:
    """Print a result: with --json its document, else its tables and lines from top to bottom."""
    if given("as_json"):
        document(data())
    else:
        show(parts, every)


def document(data: Mapping[str, Any]) -> None:
    """Print a JSON document; a number that JSON can't hold becomes text, such as `nan`."""
    line(json.dumps(_finite(data), indent=2, allow_nan=False))


def show(parts: Iterable[Sheet | str], every: bool = False) -> None:
    """Print tables and lines; all rows of the tables with `every` or --all."""
    stream = results()
    width = None if stream.isatty() else _PIPED
    console = Console(file=stream, width=width, markup=False, emoji=False)
    for part in parts:
        if isinstance(part, str):
            line(part)
        else:
            rows = [tuple(map(plain, row)) for row in part.rows]
            sheet = Sheet(part.columns, rows, plain(part.title))
            shown = sheet if every or given("every") else sheet.first(ROWS, "; --all shows them")
            console.print(shown, highlight=False)


def line(text: str) -> None:
    """Print a line."""
    print(plain(text), file=results(), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
