"""`etdev plan`: who gets which nodes of a model, where, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etdev.cli import explain_tables, lowerers, nodes, options, results, tables, viewing
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.schema.documents import CONVERTER
from etdev.schema.outcomes import Forecast
from etdev.schema.plan import Plan
from etdev.schema.report.explanation import Explanation, Query

if TYPE_CHECKING:
    from etdev.lowerer import Lowerer


@click.command("plan", cls=Command, epilog=options.SOURCE)
@options.source
@click.option("--why", metavar="GLOB", help="Show only what every plugin said about these nodes.")
@click.option(
    "--node-data",
    "folder",
    type=options.FILE,
    help=f"{nodes.HELP}.",
)
@click.option(
    "--forecast",
    "forecasting",
    is_flag=True,
    help="Also say what a lowering would find in the cache, and what it would compile.",
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
    query = explain_tables.query(node=why)
    lowerers.check(source, **lowering)
    viewing.check(views)
    if folder:
        nodes.check(folder)
    with working(options.debugging()) as say:
        from etdev.cli import sources

        lowerer = lowerers.lowerer(say, **lowering)
        plan, told = _planned(lowerer, sources.methods(source, say), forecasting)
    if folder:
        nodes.write(plan, folder)
    viewing.write(views, viewing.Viewed(plan, source))
    rows = tables.limit(every)
    if query == Query():
        if as_json:
            results.document({**plan.to_dict(), **_forecast_document(told)})
        else:
            results.show(tables.plan_report(plan, rows))
            if told is not None:
                results.show(tables.forecast_report(told, rows))
        return
    explanation = explain_tables.known(Explanation(plan, query))
    if as_json:
        results.document(explanation.to_dict())
    else:
        results.show(explain_tables.nodes_report(explanation, rows))


def _planned(
    lowerer: Lowerer, methods: Any, forecasting: bool
) -> tuple[Plan, list[Forecast] | None]:
    if not forecasting:
        return lowerer.plan(methods), None
    decision = lowerer.decide(methods)
    return decision.plan, lowerer.compilation.forecast(decision)


def _forecast_document(told: list[Forecast] | None) -> dict[str, Any]:
    return {} if told is None else {"forecast": CONVERTER.unstructure(told)}
