"""Trust: whether a .pt2 file may run code that is in it, as loading it may."""

from __future__ import annotations

import click

_KEY = "etdev.trust"


def _note(context: click.Context, _: click.Parameter, value: bool) -> bool:
    context.find_root().meta[_KEY] = value
    return value


def trusting() -> bool:
    """Whether --trust was given."""
    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().meta.get(_KEY))


option = click.option(
    "--trust",
    is_flag=True,
    expose_value=False,
    callback=_note,
    help="Load a .pt2 file that runs code then; without it, such a file is refused.",
)
