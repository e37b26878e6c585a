"""`etdev plan` shows which plugin gets which nodes of a model, where they run, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from etdev.cli import explain, lowerers, nodes, options, results, tables, viewing
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.schema.report import presenters
from etdev.schema.report.explanation import Explanation, Query
from etdev.schema.structuring import CONVERTER


@click.command("plan", cls=Command, epilog=options.SOURCE)
@options.source
@click.option("--why", metavar="GLOB", help="Show only every plugin's verdict on these nodes.")
@click.option("--node-data", "folder", type=options.FILE, help=f"{nodes.HELP}.")
@click.option(
    "--forecast",
    "forecasting",
    is_flag=True,
    help="Show, too, which partitions a lowering would find in the cache or compile.",
)
@viewing.options
@options.all_rows
@options.as_json
@options.lowering
def command(
    source: str,
    why: str | None,
    folder: Path | None,
    forecasting: bool,
    views: Mapping[str, Path],
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
    etdev plan net.py:model --forecast
    etdev plan net.py:model --html plan.html

    Exit codes: 0 for a plan, 1 for an error, 2 for wrong usage.
    """
    if why and forecasting:
        raise click.UsageError("give --why or --forecast, not both")
    query = explain.checked_query(node=why)
    lowerers.check(source, **lowering)
    viewing.check(views)
    if folder:
        nodes.check(folder)
    with working() as say:
        from etdev.cli import sources

        lowerer = lowerers.lowerer(say, **lowering)
        methods = sources.methods(source, say)
        forecast = None
        if forecasting:
            decision = lowerer.decide(methods)
            plan, forecast = decision.plan, lowerer.compilation.forecast(decision)
        else:
            plan = lowerer.plan(methods)
    if folder:
        nodes.write(plan, folder)
    viewing.write(views, viewing.Viewed(plan, source))
    if query != Query():
        explanation = explain.answered(Explanation(plan, query))
        if as_json:
            results.document(explanation.to_dict())
        else:
            results.show(presenters.nodes(explanation, every), every)
    elif as_json:
        told = {} if forecast is None else {"forecast": CONVERTER.unstructure(forecast)}
        results.document({**plan.to_dict(), **told})
    else:
        results.show(presenters.plan(plan), every)
        if forecast is not None:
            results.show([tables.forecast(forecast)], every)
