"""`etdev explain`: why nodes are where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etdev.cli import explain_tables, lowerers, options, plans, results, tables
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.schema.plan import Plan
from etdev.schema.report.explanation import Explanation


@click.command("explain", cls=Command, epilog=options.SOURCE)
@click.argument("what")
@click.option("--node", metavar="GLOB", help="Only nodes of these names.")
@click.option("--module", metavar="GLOB", help="Only nodes in these modules and what is in them.")
@click.option(
    "--op", metavar="GLOB", help="Only nodes of these ops, as they are or were before export."
)
@click.option("--plugin", metavar="NAME", help="Only what this plugin got and did not get.")
@options.asked("--ask")
@options.all_rows
@options.as_json
@options.ruling
def command(
    what: str,
    node: str | None,
    module: str | None,
    op: str | None,
    plugin: str | None,
    every: bool,
    as_json: bool,
    **lowering: Any,
) -> None:
    """Explain who has which nodes, and why not the others.

    WHAT is a SOURCE, the JSON of `etdev plan`, or a .pte that was lowered with --with-ledger. First
    come the ops left to portable kernels, grouped by reason, most nodes first; with --node,
    --module, --op or --plugin the nodes that are meant, and if it is one, its story.

    \b
    etdev explain net.py:model
    etdev explain net.py:model --op "*softmax*"
    etdev explain plan.json --node aten_add_tensor
    etdev explain net.pte --plugin cpu --all

    Exit codes: 0 for an answer, 1 for an error, 2 for wrong usage.
    """
    query = explain_tables.query(node=node, module=module, op=op, plugin=plugin)
    if not plans.is_file(what):
        lowerers.check(what, **lowering)
    elif any(lowering.values()):
        raise click.UsageError("--ask, --device, --pin, --strict and --registry need a SOURCE")
    plan = _plan(what, **lowering)
    explanation = explain_tables.known(Explanation(plan, query), what)
    if as_json:
        results.document(explanation.to_dict())
    else:
        results.show(explain_tables.report(explanation, tables.limit(every)))


def _plan(what: str, **lowering: Any) -> Plan:
    """The plan that is meant; torch is needed for all but its JSON."""
    if what.endswith(".json"):
        return plans.read_plan(Path(what))
    with working(options.debugging()) as say:
        if what.endswith(".pte"):
            say("read", what)
            from etdev.pte.embedded_plan import read_ledger

            return read_ledger(Path(what))
        from etdev.cli import sources

        return lowerers.lowerer(say, **lowering).plan(sources.methods(what, say))
