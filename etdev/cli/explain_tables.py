"""Tables of an explanation: what falls back, nodes with all verdicts, the story of one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import click
from rich.console import Group, RenderableType
from rich.table import Table

from etdev.cli.tables import fill, table
from etdev.errors import EtdevError, close_to
from etdev.schema import globs
from etdev.schema.ledger import Entry
from etdev.schema.report.explanation import Explanation, Missed, Query
from etdev.schema.report.plan_sheets import simplified_rows

# More modules or lines than these are counted, unless --all is given.
_NAMED = 3


def query(**criteria: str | None) -> Query:
    """The nodes that options name; each is a glob, apart from the plugin."""
    for name, pattern in criteria.items():
        if name != "plugin" and pattern is not None and (fault := globs.fault(pattern)):
            raise click.BadParameter(fault.removeprefix("is "), param_hint=f"--{name}")
    return Query(**criteria)


def known(explanation: Explanation, who: str = "plan") -> Explanation:
    """The explanation, if it has a node at all.

    Raises:
        EtdevError: Nothing is meant, or the plugin was not asked; the text has close names.
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


def report(explanation: Explanation, limit: int | None) -> RenderableType:
    """Show what was asked for: what falls back, the nodes that are meant, or one node's story."""
    query, entries = explanation.query, explanation.entries
    if len(entries) == 1 and query != Query():
        (told,) = explanation.told()
        return Group(*told.story)
    # Of nodes that were taken out there is nothing to count.
    gone = explanation.simplified and not entries
    sections: list[RenderableType] = [] if gone else [_owned(explanation)]
    if explanation.missed:
        sections.append(_missed(explanation.missed, query.plugin, limit))
    if query not in (Query(), Query(plugin=query.plugin)):
        sections.append(nodes_report(explanation, limit))
    elif explanation.simplified:
        sections.append(_simplified(explanation))
    return Group(*sections)


def nodes_report(explanation: Explanation, limit: int | None) -> RenderableType:
    """Show what every plugin said about some nodes, or that they were simplified before."""
    columns = ("op", "module", "owner", "pin", "plugin", "verdict", "reason")
    rows = table("node", *columns)
    several = len(explanation.plan.methods) > 1
    cells: list[tuple[str, ...]] = []
    for method, entry in explanation.entries:
        cells += _verdicts(f"{method.method}/{entry.node}" if several else entry.node, entry)
    fill(rows, cells, limit)
    gone = [str(each) for each in explanation.simplified if each.was.into != each.was.node]
    shown = gone if limit is None else gone[:limit]
    more = [f"… and {len(gone) - len(shown)} more"] if len(gone) > len(shown) else []
    return Group(*([rows] if cells else []), *shown, *more)


def _simplified(explanation: Explanation) -> Table:
    rows = table("simplified", "nodes", "each of which", "where")
    rows_of = simplified_rows(each.was for each in explanation.simplified)
    fill(rows, rows_of, None)
    return rows


def _verdicts(name: str, entry: Entry) -> Iterable[tuple[str, ...]]:
    pin = f"{entry.pin}{'' if entry.pin_kept else ' (not kept)'}" if entry.pin else "-"
    about: tuple[str, ...] = (entry.op, entry.module or "-", entry.partition or entry.holder, pin)
    for verdict in entry.verdicts:
        yield (name, *about, verdict.plugin, verdict.code, verdict.text)
        # Said once for each node.
        name, about = "", ("",) * len(about)
    if not entry.verdicts:
        yield (name, *about, "-", "-", "no plugin was asked")


def _owned(explanation: Explanation) -> Table:
    rows = table("method", "nodes", "owner")
    for method, counts in explanation.owned.items():
        for owner, count in counts.items():
            rows.add_row(method, str(count), owner)
            method = ""
    return rows


def _missed(missed: Sequence[Missed], plugin: str | None, limit: int | None) -> Table:
    title = f"not {plugin}'s" if plugin else "on portable kernels"
    rows = table(title, "nodes", *(["owner"] if plugin else []), "why", "where")
    most = None if limit is None else _NAMED
    cells = []
    for item in missed:
        why = "; ".join(map(str, item.reasons)) or "no plugin was asked"
        owner = [item.owner or "-"] if plugin else []
        places = _listed(item.lines, most) or _listed(item.modules, most) or "-"
        cells.append((item.op, str(len(item.nodes)), *owner, why, places))
    fill(rows, cells, limit)
    return rows


def _listed(names: Sequence[str], most: int | None) -> str:
    shown = names if most is None else names[:most]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more
