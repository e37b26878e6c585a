"""`etdev plan`: who gets which nodes of a model, where, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etdev.cli import explain_tables, nodes, options, pages, results, tables
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.schema.explanation import Explanation, Query


@click.command("plan", cls=Command, epilog=options.SOURCE)
@options.source
@click.option("--why", metavar="GLOB", help="Show only what every plugin said about these nodes.")
@click.option(
    "--node-data",
    "folder",
    type=options.FILE,
    help=f"{nodes.HELP}.",
)
@options.html
@options.all_rows
@options.as_json
@options.lowering
def command(
    source: str,
    why: str | None,
    folder: Path | None,
    html: Path | None,
    every: bool,
    as_json: bool,
    **lowering: Any,
) -> None:
    """Show which plugin gets which nodes of SOURCE, and why.

    Compiles nothing and needs no accelerator. `etdev check --plan` compares a .pte with the JSON,
    `etdev explain` and `etdev diff` read it.

    \b
    etdev plan net.py:model
    etdev plan net.py:model --plugin trt --plugin cpu --device trt=cuda:1
    etdev plan net.py:model --why "aten_linear_*"
    etdev plan net.py:model --json > plan.json
    etdev plan net.py:model --html plan.html

    Exit codes: 0 for a plan, 1 for an error, 2 for wrong usage.
    """
    query = explain_tables.query(node=why)
    options.check(source, **lowering)
    if html:
        pages.check()
    with working(options.debugging()) as say:
        from etdev.cli import sources

        lowerer = options.lowerer(say, **lowering)
        plan = lowerer.plan(sources.methods(source, say))
    if folder:
        nodes.write(plan, folder)
    if html:
        pages.write(html, plan, source)
    rows = tables.limit(every)
    if query == Query():
        if as_json:
            results.document(plan.to_dict())
        else:
            results.show(tables.plan_report(plan, rows))
        return
    explanation = explain_tables.known(Explanation(plan, query))
    if as_json:
        results.document(explanation.to_dict())
    else:
        results.show(explain_tables.nodes_report(explanation, rows))
