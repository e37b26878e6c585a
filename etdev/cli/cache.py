"""`etdev cache` shows, verifies and clears the compile cache."""

from __future__ import annotations

import time
from collections.abc import Callable
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


def _folder_options(command: Callable[..., Any]) -> Callable[..., Any]:
    text = "The folder; by default the one that `etdev lower` uses."
    location = click.option("--cache", "folder", metavar="DIR", help=text)
    decorated: Callable[..., Any] = location(options.registry(options.debug(command)))
    return decorated


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
@_folder_options
def info(as_json: bool, folder: str | None, registry: Path | None) -> None:
    """Show the cache's folder, its size, and the entries used last.

    Exit codes: 0, 1 for an error, 2 for wrong usage.
    """
    kept = _folder(folder, registry)
    rows = [_row(kept, stored.key, stored.size_bytes, stored.used) for stored in kept.stored()]
    total = sum(row["size_bytes"] for row in rows)
    if as_json:
        data = {"folder": str(kept.path), "size_bytes": total, "limit_bytes": kept.size_bytes}
        results.document(CACHE.stamped({**data, "entries": rows}))
        return
    results.line(f"{kept.path}: {len(rows)} entries, {size(total)} of {size(kept.size_bytes)}")
    cells = []
    for row in reversed(rows[-20:]):
        texts = [row[name] for name in ("plugin", "backend", "device", "nodes")]
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["used"]))
        cells.append((*map(str, texts), size(row["size_bytes"]), used))
    if cells:
        columns = ("plugin", "backend", "device", "nodes", "size", "last used")
        results.show([Sheet(columns, cells)], every=True)


@command.command(cls=Command)
@_folder_options
def verify(folder: str | None, registry: Path | None) -> None:
    """Read every entry, and remove entries that are damaged or from another version.

    Exit codes: 0 if all are sound, 1 if some were removed or for an error, 2 for wrong usage.
    """
    kept, removed, count = _folder(folder, registry), 0, 0
    for stored, problem in kept.verify():
        count += 1
        if problem:
            kept.remove(stored.key)
            removed += 1
            results.line(f"{stored.path}: {problem}; removed")
    results.line(f"{kept.path}: {count - removed} sound, {removed} removed")
    raise SystemExit(bool(removed))


@command.command(cls=Command)
@_folder_options
def clear(folder: str | None, registry: Path | None) -> None:
    """Remove every entry, but no other file.

    Exit codes: 0, 1 for an error, 2 for wrong usage.
    """
    kept = _folder(folder, registry)
    results.line(f"{kept.path}: {kept.clear()} entries removed")


def _folder(location: str | None, registry: Path | None) -> Folder:
    settings = CacheSettings.of(location, load(registry).cache)
    if settings.off:
        raise CacheError("cache", "is off", "name its folder with --cache DIR")
    if settings.path.exists() and not settings.path.is_dir():
        raise CacheError(str(settings.path), "is not a folder", "name the cache's folder")
    return Folder(settings.path, settings.size_bytes)


def _row(folder: Folder, key: str, size_bytes: int, used: float) -> dict[str, Any]:
    row = {"key": key, "size_bytes": size_bytes, "used": used}
    blank = dict.fromkeys(("plugin", "backend", "device", "nodes"), "?")
    data = folder.read(key)
    if data is None:
        return {**row, **blank, "problem": "can't be read"}
    try:
        return {**row, **blank, **Entry.from_bytes(data, key).about}
    except CacheError as error:
        return {**row, **blank, "problem": error.what}
