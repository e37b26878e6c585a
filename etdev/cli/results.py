"""Results: what a command prints to stdout, as lines, tables or a JSON document."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console, RenderableType

from etdev.cli.plain import Plain, plain
from etdev.cli.streams import results

# Piped, a table is as wide as it needs to be: cells folded at 80 columns can't be searched.
_PIPED = 160


def line(text: str) -> None:
    """Print a line."""
    print(plain(text), file=results(), flush=True)


def document(data: Mapping[str, Any]) -> None:
    """Print a JSON document; numbers that JSON can't write are text, such as `nan`."""
    line(json.dumps(_finite(data), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def show(report: RenderableType) -> None:
    """Print a report."""
    stream = results()
    width = None if stream.isatty() else _PIPED
    console = Console(file=stream, width=width, markup=False)
    console.push_render_hook(Plain())
    console.print(report, highlight=False)
