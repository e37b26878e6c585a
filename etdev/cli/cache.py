"""`etdev cache` shows and clears the compile cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etdev.cli import options, results
from etdev.cli.group import Command
from etdev.delegate.cache.folder import Folder
from etdev.errors import CacheError
from etdev.registry import load
from etdev.schema.caching import CacheSettings
from etdev.schema.documents import CACHE
from etdev.schema.wording import counted, size

_LOCATION = options.together(
    click.option(
        "--cache",
        "location",
        metavar="DIR",
        help="The folder; by default the one that `etdev lower` uses.",
    ),
    options.registry,
    options.debug,
)


@click.group("cache")
def command() -> None:
    """Show and clear the compile cache.

    `etdev lower` reuses compiled partitions of the same program, weights, options and versions.
    These commands look at the folder on this machine, not at a shared cache behind a URL.

    \b
    etdev cache info
    etdev cache clear

    Exit codes: 0 for success, 1 for an error, 2 for wrong usage.
    """


@command.command(cls=Command)
@options.as_json
@_LOCATION
def info(**location: Any) -> None:
    """Show the cache's folder, its size and the number of its entries.

    Exit codes: 0, 1 for an error, 2 for wrong usage.
    """
    kept = _folder(**location)
    stored = kept.stored()
    entries = [{"key": s.key, "size_bytes": s.size_bytes, "used": s.used} for s in stored]
    total = sum(entry.size_bytes for entry in stored)
    data = {"folder": str(kept.path), "size_bytes": total, "limit_bytes": kept.size_bytes}
    count = counted(len(entries), "entry", "entries")
    line = f"{kept.path}: {count}, {size(total)} of {size(kept.size_bytes)}"
    results.report(lambda: CACHE.stamped({**data, "entries": entries}), [line])


@command.command(cls=Command)
@_LOCATION
def clear(**location: Any) -> None:
    """Remove every entry, but no other file.

    Exit codes: 0, 1 for an error, 2 for wrong usage.
    """
    kept = _folder(**location)
    results.line(f"{kept.path}: {counted(kept.clear(), 'entry', 'entries')} removed")


def _folder(location: str | None, registry: Path | None) -> Folder:
    settings = CacheSettings.of(location, load(registry).cache)
    if settings.off:
        raise CacheError("cache", "is off", "name its folder with --cache DIR")
    # A URL stands for the folder in front of it only where another place names it.
    is_url = bool(location and settings.url)
    if is_url or ((location or settings.path.exists()) and not settings.path.is_dir()):
        place = location or str(settings.path)
        raise CacheError(place, "is not a folder", "name the cache's folder")
    return Folder(settings.path, settings.size_bytes)
