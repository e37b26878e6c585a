"""Lowerers made from the lowering options, which are checked before torch is imported."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etdev.cli.progress import Display, working
from etdev.errors import SourceError, close_to

if TYPE_CHECKING:
    from etdev.lowerer import Lowerer
    from etdev.schema.plan import Plan

FORMS = "write file.pt2, package.module:function or file.py:function"


def check(source: str | None, **lowering: Any) -> None:
    """Check a SOURCE and the lowering options as far as possible without torch.

    A misspelt name is then reported at once, and not after seconds of importing.
    """
    from etdev.planner.rules import Options, rules
    from etdev.registry.registry import load
    from etdev.registry.selection import names_of

    given = arguments(**lowering)
    table = load(given["registry"])
    with warnings.catch_warnings():
        # The lowerer warns again.
        warnings.simplefilter("ignore")
        names = names_of(table, given["plugins"])
        options = Options(**{name: given[name] for name in ("devices", "pins", "strict")})
        rules(table, names, options)
    if source is not None:
        check_source(source)


def check_source(text: str) -> None:
    """Check that a SOURCE names a model in a file that exists."""
    if text.endswith(".pt2"):
        if not Path(text).is_file():
            raise SourceError(text, "does not exist", "give the path of a .pt2 file")
        return
    place, _, name = (text, "", "") if text.endswith(".py") else text.rpartition(":")
    if not place or not (name or place.endswith(".py")):
        raise SourceError(text, "does not name a model", FORMS)
    if not place.endswith(".py"):
        return
    if not Path(place).is_file():
        raise SourceError(text, f"there is no file {place!r}", FORMS)
    if not name:
        code = Path(place).read_text(encoding="utf-8", errors="replace")
        raise no_function(text, name, re.findall(r"^def ([^\W_]\w*)\(", code, re.MULTILINE))


def no_function(text: str, name: str, known: Sequence[str]) -> SourceError:
    """Return the error about a SOURCE without a function of its name."""
    what = f"there is no function {name!r}" if name else "names no function"
    if not known:
        return SourceError(text, what, FORMS)
    place = text.removesuffix(f":{name}")
    only = f"write {place}:{known[0]}" if len(known) == 1 else ""
    return SourceError(
        text, what, only or close_to(name, known) or f"it has {', '.join(known[:8])}"
    )


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
