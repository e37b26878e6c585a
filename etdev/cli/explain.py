"""`etdev explain` shows which plugin owns which nodes, and why the other plugins don't."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import click

from etdev.cli import lowerers, options, results
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.errors import EtdevError, close_to
from etdev.schema.plan import Plan
from etdev.schema.report import presenters
from etdev.schema.report.explanation import Explanation, Query


@click.command("explain", cls=Command, epilog=options.SOURCE)
@click.argument("what")
@options.glob("--node", help="Only nodes of these names.")
@options.glob("--module", help="Only nodes in these modules and their submodules.")
@options.glob("--op", help="Only nodes of these ops, before or after export.")
@click.option("--plugin", metavar="NAME", help="Only nodes that this plugin was asked about.")
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
    **lowering: Any,
) -> None:
    """Explain which plugin owns which nodes, and why.

    WHAT is a SOURCE, the JSON of `etdev plan`, or a .pte that was lowered with --with-ledger. Shows
    the ops left to portable kernels, grouped by reason, most nodes first; with --node, --module,
    --op or --plugin the nodes that match, and the story of a single one.

    \b
    etdev explain net.py:model
    etdev explain net.py:model --op "*softmax*"
    etdev explain plan.json --node aten_add_tensor
    etdev explain net.pte --plugin cpu --all

    Exit codes: 0 for an answer, 1 for an error, 2 for wrong usage.
    """
    if not what.endswith((".json", ".pte")):
        lowerers.check(what, **lowering)
    elif any(lowering.values()):
        raise click.UsageError("--ask, --device, --pin, --strict and --registry need a SOURCE")
    query = Query(node=node, module=module, op=op, plugin=plugin)
    explanation = answered(Explanation(_plan(what, **lowering), query), what)
    every = bool(options.given("every"))
    results.report(explanation.to_dict, presenters.explanation(explanation, every))


def answered(explanation: Explanation, who: str = "plan") -> Explanation:
    """Return the explanation if any node matches its query.

    Raises:
        EtdevError: No node matches, or the plugin was not asked; the message has close names.
    """
    query, plan = explanation.query, explanation.plan
    asked = [name for name, _ in plan.plugins]
    if query.plugin is not None and query.plugin not in asked:
        cure = close_to(query.plugin, asked) or f"asked were {', '.join(asked) or 'none'}"
        raise EtdevError(who, f"plugin {query.plugin!r} was not asked", cure)
    if explanation.entries or explanation.simplified or query == Query():
        return explanation
    entries = [entry for method in plan.methods for entry in method.ledger]
    for kind, pattern, names in (
        ("node", query.node, [entry.node for entry in entries]),
        ("module", query.module, [entry.module for entry in entries]),
        ("op", query.op, [name for entry in entries for name in (entry.op, entry.source_op)]),
    ):
        if pattern is not None and not explanation.matches(kind, pattern):
            close = difflib.get_close_matches(pattern, dict.fromkeys(filter(None, names)), 3)
            cure = f"close are {', '.join(close)}" if close else ""
            raise EtdevError(who, f"there is no {kind} {pattern!r}", cure)
    raise EtdevError(who, f"no node matches {query}", "leave one of them out")


def read_plan(file: Path) -> Plan:
    """Read the JSON of a plan."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise EtdevError(str(file), f"can't be read ({error.strerror})", "give a file") from error
    except UnicodeDecodeError as error:
        cure = "write it with etdev plan --json"
        raise EtdevError(str(file), "is not a plan (it is not text)", cure) from error
    return Plan.from_json(text, str(file))


def _plan(what: str, **lowering: Any) -> Plan:
    # The JSON of a plan needs no torch.
    if what.endswith(".json"):
        return read_plan(Path(what))
    with working() as say:
        if what.endswith(".pte"):
            say("read", what)
            from etdev.pte.embedded_plan import read_ledger

            return read_ledger(Path(what))
        from etdev.cli import sources

        return lowerers.lowerer(say, **lowering).plan(sources.methods(what, say))
