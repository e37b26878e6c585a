"""`etdev quirks`: faults of torch, ExecuTorch and backends, and what etdev does about each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from etdev.cli import options, results, tables
from etdev.cli.group import Command
from etdev.cli.progress import import_torch, quieted
from etdev.cli.verbosity import Verbosity
from etdev.registry import load
from etdev.schema.documents import QUIRKS

if TYPE_CHECKING:
    from etdev.schema.quirk import Quirk

_COLUMNS = ("name", "stage", "upstream", "affects", "summary")


@click.command("quirks", cls=Command)
@options.as_json
@options.registry
@options.debug
def command(as_json: bool, registry: Path | None) -> None:
    """List the faults of other projects that etdev fixes or refuses.

    Those of the installed versions are looked for in every lowering, stage by stage; the others are
    grey. Plugins add rows for their backends.

    \b
    etdev quirks
    etdev quirks --json

    Exit codes: 0, 1 if the registry can't be read, 2 for wrong usage.
    """
    table = load(registry)
    debug = options.debugging()
    with quieted(debug):
        import_torch(debug, Verbosity.chosen())
        from etdev.quirks.table import is_active, rows_of
        from etdev.registry.selection import select

        rows = [
            {**_row(owner, row), "active": is_active(row.affects)}
            for owner, row in rows_of(select(table, None))
        ]
    if as_json:
        results.document(QUIRKS.stamped({"quirks": rows}))
    else:
        results.show(_report(rows))


def _row(owner: str, row: Quirk) -> dict[str, object]:
    return {
        "name": row.name,
        "owner": owner,
        "stage": ", ".join(stage.value for stage in row.stages),
        "upstream": row.upstream,
        "affects": row.affects,
        "summary": row.summary,
        "does": "fixes" if row.fix or row.during else "refuses",
    }


def _report(rows: Sequence[dict[str, object]]) -> Table:
    report = tables.table(*_COLUMNS)
    for row in rows:
        style = "" if row["active"] else "dim"
        report.add_row(*(Text(str(row[column]), style) for column in _COLUMNS))
    return report
