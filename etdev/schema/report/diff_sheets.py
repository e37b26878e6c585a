"""Sheets of a difference: figures, partitions and copies, modules, nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from etdev.schema.difference import Difference
from etdev.schema.report.sheet import Sheet


def sheets(difference: Difference) -> Iterator[Sheet]:
    """What changed, the most general first; nothing of what did not."""
    return (sheet for sheet in _sheets(difference) if sheet.rows)


def _sheets(difference: Difference) -> Iterator[Sheet]:
    figures = [(f.what, f.before, f.after, f"{f.after - f.before:+d}") for f in difference.figures]
    rows = [tuple(map(str, cells)) for cells in figures]
    yield Sheet(("figure", "before", "after", "change"), rows)
    parts = [(p.kind, p.method, p.before or "-", p.after or "-") for p in difference.parts]
    yield Sheet(("what", "method", "before", "after"), parts)
    moves = difference.modules
    modules = [(m.module, m.method, _counts(m.before), _counts(m.after)) for m in moves]
    yield Sheet(("module", "method", "before", "after"), modules)
    nodes = [(n.node, n.op, n.method, n.before or "-", n.after or "-") for n in difference.nodes]
    yield Sheet(("node", "op", "method", "before", "after"), nodes)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{owner} {count}" for owner, count in counts.items()) or "-"
