"""`etdev plan` shows which plugin gets which nodes of a model, where they run, and why."""

from __future__ import annotations

from typing import Any

import click

from etdev.cli import lowerers, options, results, tables, viewing
from etdev.cli.explain import answered
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.schema.report import presenters
from etdev.schema.report.explanation import Explanation, Query
from etdev.schema.structuring import CONVERTER


@click.command("plan", cls=Command, epilog=options.SOURCE)
@options.source
@options.glob("--why", help="Show only every plugin's verdict on these nodes.")
@viewing.node_data
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
def command(source: str, why: str | None, forecasting: bool, **lowering: Any) -> None:
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
    lowerers.check(source, **lowering)
    viewing.check()
    with working() as say:
        from etdev.cli import sources

        lowerer = lowerers.lowerer(say, **lowering)
        methods = sources.methods(source, say)
        told, sheets = {}, []
        if forecasting:
            decision = lowerer.decide(methods)
            plan, forecast = decision.plan, lowerer.compilation.forecast(decision)
            told, sheets = (
                {"forecast": CONVERTER.unstructure(forecast)},
                [tables.forecast(forecast)],
            )
        else:
            plan = lowerer.plan(methods)
    viewing.write(lambda: viewing.Viewed(plan, source))
    if why is not None:
        explanation = answered(Explanation(plan, Query(node=why)))
        every = bool(options.given("every"))
        results.report(explanation.to_dict, presenters.nodes(explanation, every))
    else:
        results.report(lambda: {**plan.to_dict(), **told}, [*presenters.plan(plan), *sheets])
