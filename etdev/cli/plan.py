"""`etdev plan` shows which plugin gets which nodes of a model, where they run, and why."""

from __future__ import annotations

from typing import Any

import click

from etdev.cli import lowerers, options, results, viewing
from etdev.cli.explain import answered
from etdev.cli.group import Command
from etdev.report import presenters
from etdev.report.explanation import Explanation, Query

# Said under each plan, since nothing is emitted yet.
_LATER = "rows of the quirks table for emit and plan memory act later: etdev lower -v shows them"


@click.command("plan", cls=Command, epilog=options.SOURCE)
@options.source
@click.option("--why", metavar="GLOB", help="Show only what every plugin says of these nodes.")
@viewing.options
@options.all_rows
@options.as_json
@options.lowering
def command(source: str, why: str | None, **lowering: Any) -> None:
    """Show which plugin gets which nodes of SOURCE, and why.

    Compiles nothing and needs no accelerator: plugins that can't compile here, which `etdev lower`
    leaves out, are asked, too. `etdev check --plan`, `explain` and `diff` read the JSON.

    \b
    etdev plan net.py:model
    etdev plan net.py:model --plugin trt,cpu --device trt=cuda:1
    etdev plan net.py:model --why "aten_linear_*"
    etdev plan net.py:model --json > plan.json
    etdev plan net.py:model --html plan.html

    Exit codes: 0 for a plan, 1 for an error, 2 for wrong usage.
    """
    lowerers.check(source, **lowering)
    viewing.check()
    plan = lowerers.planned(source, **lowering)
    viewing.write(lambda: viewing.Viewed(plan, source))
    if why is not None:
        explanation = answered(Explanation(plan, Query(node=why)), "plan", f"--why {why}")
        results.report(explanation.to_dict, presenters.nodes(explanation))
    else:
        results.report(plan.to_dict, [*presenters.sheets(plan), _LATER])
