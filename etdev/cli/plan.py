"""`etdev plan`: who gets which nodes of a model, where, and why."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict
from rich.console import Group, RenderableType

from etdev.cli import options, tables
from etdev.cli.progress import working
from etdev.errors import EtdevError

if TYPE_CHECKING:
    from etdev.schema.ledger import Entry
    from etdev.schema.plan import Plan


@click.command("plan", epilog=options.SOURCE)
@options.source
@click.option("--why", metavar="NODE", help="Show only what every plugin said about a node.")
@options.as_json
@options.lowering
def command(source: str, why: str | None, as_json: bool, **lowering: Any) -> None:
    """Show which plugin gets which nodes of SOURCE, and why.

    Compiles nothing and needs no accelerator. `etdev check --plan` compares a .pte with the JSON.

    \b
    etdev plan net.py:model
    etdev plan net.py:model --plugin trt --plugin cpu --device trt=cuda:1
    etdev plan net.py:model --why aten_linear_default
    etdev plan net.py:model --json > plan.json

    Exit codes: 0 for a plan, 1 for an error, 2 for wrong usage.
    """
    with working(options.debugging()) as say:
        from etdev.cli import sources

        lowerer = options.lowerer(say, **lowering)
        plan = lowerer.plan(sources.methods(source, say))
    if why and as_json:
        rows = [{"method": method, **asdict(entry)} for method, entry in entries_of(plan, why)]
        print(json.dumps(rows, indent=2))
    elif why:
        tables.show(why_report(entries_of(plan, why)))
    elif as_json:
        print(plan.to_json())
    else:
        tables.show(tables.plan_report(plan))


def entries_of(plan: Plan, node: str) -> list[tuple[str, Entry]]:
    """Find a node's entry in the ledger of every method that has it.

    Raises:
        EtdevError: No method has a node of that name.
    """
    ledgers = [(method.method, entry) for method in plan.methods for entry in method.ledger]
    entries = [(method, entry) for method, entry in ledgers if entry.node == node]
    if not entries:
        close = difflib.get_close_matches(node, [entry.node for _, entry in ledgers], 3)
        cure = f"close are {', '.join(close)}" if close else ""
        raise EtdevError("plan", f"there is no node {node!r}", cure)
    return entries


def why_report(entries: Sequence[tuple[str, Entry]]) -> RenderableType:
    """Show what every plugin said about a node, and what it is pinned by, in every method."""
    rows = tables.table("method", "node", "op", "plugin", "verdict", "reason")
    pins = []
    for method, entry in entries:
        for verdict in entry.verdicts:
            cells = (entry.node, entry.op, verdict.plugin, verdict.code, verdict.text)
            rows.add_row(method, *cells)
        if entry.pin:
            kept = "" if entry.pin_kept else f", but {entry.pin.plugin} does not take it"
            pins.append(f"{method}/{entry.node} is pinned by {entry.pin}{kept}")
    return Group(rows, *pins)
