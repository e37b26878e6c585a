"""Options that name files to write; a command that names such a file twice doesn't start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from etdev.cli.options import given, remembered
from etdev.errors import EtdevError

force = remembered("--force", is_flag=True, help="Replace files that etdev did not write, too.")


class Output(click.Path):
    """The type of an option that names a file to write.

    Args:
        beside: Suffixes of the files that are written next to it, with the same stem.
    """

    def __init__(self, *beside: str) -> None:
        super().__init__(path_type=Path)
        self.beside = beside


def refuse_twice_named(context: click.Context) -> None:
    """Refuse a command whose output another of its options or arguments names, too."""
    written: list[tuple[str, str]] = []
    named: list[tuple[str, str]] = []
    for parameter in context.command.params:
        label, kind = parameter.opts[0], parameter.type
        label = label if label.startswith("-") else label.upper()
        for text in _texts(context.params.get(parameter.name or "")):
            # A file may stand before a function, or after a method.
            paths = [text, *text.rsplit(":", 1)]
            if isinstance(kind, Output):
                stem = os.path.splitext(text)[0]
                paths = [text, *(f"{stem}{suffix}" for suffix in kind.beside)]
            (written if isinstance(kind, Output) else named).extend((label, p) for p in paths)
    written += [(f"view {name}", str(path)) for name, path in (given("views") or {}).items()]
    for index, (label, path) in enumerate(written):
        for other, one in (*written[:index], *named):
            if os.path.realpath(path) == os.path.realpath(one):
                what = f"is named by {label} and by {other}, and would be overwritten"
                raise EtdevError(path, what, "choose another path")


def _texts(value: Any) -> list[str]:
    """Return the texts that an option was given."""
    if isinstance(value, (list, tuple)):
        return [text for one in value for text in _texts(one)]
    return [str(value)] if isinstance(value, (str, Path)) else []
