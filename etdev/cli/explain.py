"""`etdev explain` shows which plugin owns which nodes, and why the other plugins don't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from attrs import astuple

from etdev.cli import lowerers, options, results
from etdev.cli.group import Command
from etdev.errors import EtdevError, close_to
from etdev.report import presenters
from etdev.report.explanation import Explanation, Query
from etdev.schema.plan import Plan


@click.command("explain", cls=Command, epilog=options.SOURCE)
@click.argument("what")
@click.option("--node", metavar="GLOB", help="Only nodes of these names.")
@click.option("--module", metavar="GLOB", help="Only nodes in these modules and their submodules.")
@click.option("--op", metavar="GLOB", help="Only nodes of these ops, before or after export.")
@click.option("--asked", metavar="NAME", help="Only nodes that this plugin was asked about.")
@options.all_rows
@options.as_json
@options.lowering
def command(
    what: str,
    node: str | None,
    module: str | None,
    op: str | None,
    asked: str | None,
    **lowering: Any,
) -> None:
    """Explain which plugin owns which nodes, and why.

    WHAT is a SOURCE, the JSON of `etdev plan`, or a .pte with its ledger. Shows
    the ops left to portable kernels, grouped by reason, most nodes first; with --node, --module,
    --op or --asked the nodes that match, and all about a single one.

    \b
    etdev explain net.py:model
    etdev explain net.py:model --op "*softmax*"
    etdev explain plan.json --node aten_add_tensor
    etdev explain net.py:model --plugin trt,cpu
    etdev explain net.pte --asked cpu --all

    Exit codes: 0 for an answer, 1 for an error, 2 for wrong usage.
    """
    in_file = what.endswith((".json", ".pte"))
    if not in_file:
        lowerers.check(what, **lowering)
    elif any(lowering.values()):
        raise click.UsageError(
            "--plugin, --device, --pin, --strict and --registry need a SOURCE; "
            "--asked NAME shows the nodes that a plugin was asked about"
        )
    query = Query(node=node, module=module, op=op, asked=asked)
    # The plan of a file needs no torch.
    plan = read_plan(Path(what)) if in_file else lowerers.planned(what, **lowering)
    explanation = answered(Explanation(plan, query), what, str(query))
    shown = presenters.explanation(explanation, bool(options.given("every")))
    results.report(explanation.to_dict, shown)


def answered(explanation: Explanation, who: str, options: str) -> Explanation:
    """Return the explanation if any node matches its query, which the user gave as options.

    Raises:
        EtdevError: No node matches; the message has close names.
    """
    query, plan = explanation.query, explanation.plan
    if explanation.entries or query == Query():
        return explanation
    entries = (entry for method in plan.methods for entry in method.ledger)
    names = {name for e in entries for name in (e.node, e.module, e.op, e.source_op)}
    names.update(plugins := [name for name, _ in plan.plugins])
    cures = [close_to(text, names) for text in astuple(query) if text and text not in names]
    known = f"the plugins are {', '.join(plugins)}" if query.asked not in (None, *plugins) else ""
    raise EtdevError(who, f"no node matches {options}", " ".join(cures).strip() or known)


def read_plan(file: Path) -> Plan:
    """Read the JSON of a plan, or the plan that a .pte carries."""
    if file.suffix == ".pte":
        from etdev.pte.embedded_plan import read_ledger

        return read_ledger(file)
    return Plan.read(file)
