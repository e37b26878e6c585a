"""Lowerers made from the lowering options, which are checked before torch is imported."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import click

from etdev.cli.progress import Display, working
from etdev.cli.source_names import check_source

if TYPE_CHECKING:
    from etdev.lowerer import Lowerer
    from etdev.schema.plan import Plan


def check(source: str | None, **lowering: Any) -> None:
    """Check a SOURCE and the lowering options as far as possible without torch.

    A misspelt name is then reported at once, and not after seconds of importing.
    """
    from etdev.planner.checks import check_asked
    from etdev.registry.registry import load
    from etdev.registry.selection import names_of
    from etdev.schema.options import Options, resolved

    given = arguments(**lowering)
    table = load(given["registry"])
    with warnings.catch_warnings():
        # The lowerer warns again.
        warnings.simplefilter("ignore")
        names = names_of(table, given["plugins"])
        check_asked(resolved(given, Options()), table, names)
    if source is not None:
        check_source(source)


def planned(source: str, **lowering: Any) -> Plan:
    """Return the plan of the model that a SOURCE names."""
    with working() as say:
        from etdev.cli import sources

        return lowerer(say, **lowering).plan(sources.methods(source, say))


def lowerer(say: Display, **lowering: Any) -> Lowerer:
    """Return a Lowerer for the lowering options."""
    with say.watch.stage("load", "plugins"):
        from etdev.lowerer import Lowerer

        return Lowerer(**arguments(**lowering), listener=say)


def arguments(cache: str | None, no_cache: bool, **others: Any) -> dict[str, Any]:
    """Return the arguments of Lowerer for the lowering options."""
    if cache and no_cache:
        raise click.UsageError("give --cache or --no-cache, not both")
    return {**others, "cache": False if no_cache else cache}
