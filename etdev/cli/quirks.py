"""`etdev quirks` lists faults of torch, ExecuTorch and backends, and etdev's answer to each."""

from __future__ import annotations

from pathlib import Path

import click

from etdev.cli import options, results
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.registry import load
from etdev.report.sheet import Sheet
from etdev.schema.documents import QUIRKS

_COLUMNS = ("name", "stage", "upstream", "since", "fixed", "summary")


@click.command("quirks", cls=Command)
@options.as_json
@options.registry
@options.debug
def command(registry: Path | None) -> None:
    """List the faults of other projects that etdev fixes or refuses.

    Every lowering looks for the faults of the installed versions, stage by stage; the column
    `active` marks them. A fault counts as present until the release that fixed it is known.
    Plugins add rows for their backends.

    \b
    etdev quirks
    etdev quirks --json

    Exit codes: 0, 1 if the registry can't be read, 2 for wrong usage.
    """
    table = load(registry)
    with working():
        from etdev.quirks.table import rows_of
        from etdev.registry.selection import select

        rows = [
            {
                "name": row.name,
                "owner": owner,
                "stage": ", ".join(stage.name for stage in row.stages),
                "upstream": row.upstream,
                "since": str(row.since or ""),
                "fixed": str(row.fixed or ""),
                "summary": row.summary,
                "does": "fixes" if row.fix or row.during else "refuses",
                "active": row.is_present,
            }
            for owner, row in rows_of(select(table, None))
        ]
    cells = [
        (*(str(row[name]) for name in _COLUMNS), "yes" if row["active"] else "-") for row in rows
    ]
    sheet = Sheet((*_COLUMNS, "active"), cells)
    results.report(lambda: QUIRKS.stamped({"quirks": rows}), [sheet], every=True)
