"""Verbosity of the commands, which -v, -q and --log-level set."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import click
from attrs import frozen

_KEY = "etdev.verbosity"
LEVELS = ("debug", "info", "warning", "error", "critical")


@frozen
class Verbosity:
    """Amount of text that a command writes to stderr.

    Args:
        verbose: Write every step, not only each stage.
        quiet: Write nothing but errors and etdev's own warnings.
        level: Least level of other libraries' logs to show; None shows none.
    """

    verbose: bool = False
    quiet: bool = False
    level: int | None = None

    @classmethod
    def chosen(cls) -> Verbosity:
        """Return the verbosity of the command that runs, given before or after its name."""
        context = click.get_current_context(silent=True)
        given = context.find_root().meta.get(_KEY, {}) if context else {}
        level = given.get("log_level")
        return cls(
            verbose=bool(given.get("verbose")),
            quiet=bool(given.get("quiet")),
            level=logging.getLevelName(level.upper()) if level else None,
        )


def _note(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    given = context.find_root().meta.setdefault(_KEY, {})
    if value:
        given[parameter.name] = value
    if given.get("verbose") and given.get("quiet"):
        raise click.UsageError("-v and -q contradict each other")
    return value


_OPTIONS = (
    click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=_note, help="Say every step."
    ),
    click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_note,
        help="Say nothing but errors and warnings.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        expose_value=False,
        callback=_note,
        help="Show other libraries' logs from this level on.",
    ),
)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add -v, -q and --log-level to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
