"""`etdev quirks` lists faults of torch, ExecuTorch and backends, and etdev's answer to each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from etdev.cli import options, results
from etdev.cli.group import Command
from etdev.cli.progress import import_torch, quieted
from etdev.registry import load
from etdev.schema.documents import QUIRKS
from etdev.schema.report.sheet import Sheet

if TYPE_CHECKING:
    from etdev.schema.quirk import Quirk

_COLUMNS = ("name", "stage", "upstream", "affects", "summary")


@click.command("quirks", cls=Command)
@options.as_json
@options.registry
@options.debug
def command(as_json: bool, registry: Path | None) -> None:
    """List the faults of other projects that etdev fixes or refuses.

    Every lowering looks for the faults of the installed versions, stage by stage; the column
    `active` marks them. Plugins add rows for their backends.

    \b
    etdev quirks
    etdev quirks --json

    Exit codes: 0, 1 if the registry can't be read, 2 for wrong usage.
    """
    table = load(registry)
    with quieted():
        import_torch()
        from etdev.quirks.table import is_active, rows_of
        from etdev.registry.selection import select

        rows = [
            {**_row(owner, row), "active": is_active(row.affects)}
            for owner, row in rows_of(select(table, None))
        ]
    if as_json:
        results.document(QUIRKS.stamped({"quirks": rows}))
        return
    cells = [
        (*(str(row[column]) for column in _COLUMNS), "yes" if row["active"] else "-")
        for row in rows
    ]
    results.show([Sheet((*_COLUMNS, "active"), cells)], every=True)


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
