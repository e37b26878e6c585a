"""`etdev cache` shows, verifies and clears the compile cache."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from etdev.cli import options, results
from etdev.cli.group import Command
from etdev.delegate.cache.entry import Entry
from etdev.delegate.cache.folder import Folder
from etdev.errors import CacheError
from etdev.registry import load
from etdev.schema.caching import CacheSettings
from etdev.schema.documents import CACHE
from etdev.schema.report.sheet import Sheet, size

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
_ABOUT = ("plugin", "backend", "device", "nodes")


@click.group("cache")
def command() -> None:
    """Show, verify and clear the compile cache.

    `etdev lower` reuses compiled partitions of the same program, weights, options and versions.
    These commands look at the folder on this machine, not at a shared cache behind a URL.

    \b
    etdev cache info
    etdev cache verify
    etdev cache clear

    Exit codes: 0 for success, 1 for an error, 2 for wrong usage.
    """


@command.command(cls=Command)
@options.as_json
@_LOCATION
def info(**location: Any) -> None:
    """Show the cache's folder, its size, and the entries used last.

    Exit codes: 0, 1 for an error, 2 for wrong usage.
    """
    kept = _folder(**location)
    rows = [
        {
            "key": each.key,
            "size_bytes": each.size_bytes,
            "used": each.used,
            **_about(kept, each.key),
        }
        for each in kept.stored()
    ]
    total = sum(row["size_bytes"] for row in rows)
    cells = [
        (
            *(str(row[name]) for name in _ABOUT),
            size(row["size_bytes"]),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(row["used"])),
        )
        for row in reversed(rows[-20:])
    ]
    line = f"{kept.path}: {len(rows)} entries, {size(total)} of {size(kept.size_bytes)}"
    sheets = [Sheet((*_ABOUT, "size", "last used"), cells)] if cells else []
    data = {"folder": str(kept.path), "size_bytes": total, "limit_bytes": kept.size_bytes}
    results.report(lambda: CACHE.stamped({**data, "entries": rows}), [line, *sheets], every=True)


@command.command(cls=Command)
@_LOCATION
def verify(**location: Any) -> None:
    """Read every entry, and remove entries that are damaged or from another version.

    Exit codes: 0 if all are sound, 1 if some were removed or for an error, 2 for wrong usage.
    """
    kept, removed, count = _folder(**location), 0, 0
    for stored, problem in kept.verify():
        count += 1
        if problem:
            kept.remove(stored.key)
            removed += 1
            results.line(f"{stored.path}: {problem}; removed")
    results.line(f"{kept.path}: {count - removed} sound, {removed} removed")
    raise SystemExit(bool(removed))


@command.command(cls=Command)
@_LOCATION
def clear(**location: Any) -> None:
    """Remove every entry, but no other file.

    Exit codes: 0, 1 for an error, 2 for wrong usage.
    """
    kept = _folder(**location)
    results.line(f"{kept.path}: {kept.clear()} entries removed")


def _folder(location: str | None, registry: Path | None) -> Folder:
    settings = CacheSettings.of(location, load(registry).cache)
    if settings.off:
        raise CacheError("cache", "is off", "name its folder with --cache DIR")
    if settings.path.exists() and not settings.path.is_dir():
        raise CacheError(str(settings.path), "is not a folder", "name the cache's folder")
    return Folder(settings.path, settings.size_bytes)


def _about(folder: Folder, key: str) -> dict[str, Any]:
    """Return what an entry says about itself, or the problem of reading it."""
    blank = dict.fromkeys(_ABOUT, "?")
    data = folder.load(key, note=False)
    if data is None:
        return {**blank, "problem": "can't be read"}
    try:
        return {**blank, **Entry.from_bytes(data, key).about}
    except CacheError as error:
        return {**blank, "problem": error.what}
