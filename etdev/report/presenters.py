"""Presenters of plans, differences, profiles and explanations: each yields tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from etdev.report.difference import Difference
from etdev.report.explanation import Explanation, Query
from etdev.report.holes import holes
from etdev.report.sheet import Sheet
from etdev.schema.ledger import Entry, together
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.profile import Profile
from etdev.schema.tensors import Tensor, loading, repeats
from etdev.schema.wording import counted, listed, size

# A cell names this many lines or modules, and counts the rest.
_NAMED = 3
# A line names this many changes.
_CHANGES = 5


def sheets(value: Any) -> Iterator[Sheet]:
    """Yield the sheets of a plan, of one of its methods, of a difference or of a profile."""
    if isinstance(value, Plan):
        for each in value.methods:
            yield from _method(each)
        yield from _filled(
            Sheet(("state",), [(line,) for line in loading(value.state)]),
            Sheet(("stored again",), [(line,) for line in repeats(value.stored_again)]),
            Sheet(("larger by",), [(str(growth),) for growth in value.growths]),
        )
    elif isinstance(value, MethodPlan):
        yield from _method(value)
    elif isinstance(value, Difference):
        yield from _filled(
            _table(value.figures, "what before after"),
            _table(value.parts, "kind method before after"),
            _table(value.nodes, "node op method before after"),
        )
    elif isinstance(value, Profile):
        columns = "name calls ms share plugin modules reasons"
        yield _table(value.costs, columns, f"{value.runs} runs")


def _method(method: MethodPlan) -> Iterator[Sheet]:
    """Yield owners, partitions, pins, copies, simplified nodes, and ops that fall back and why."""
    counts = Counter(partition.plugin for partition in method.partitions)
    precisions, shares = method.ledger.precisions(), method.ledger.shares()
    owners = [
        (
            owner,
            str(counts[owner] or "-"),
            str(n),
            shares.get(owner, "-"),
            _kinds(precisions[owner]),
        )
        for owner, n in method.ledger.owned().items()
    ]
    if method.copied_bytes:
        owners.append(("stored again", "-", size(method.copied_bytes), "-", "-"))
    columns = ("owner", "delegates", "nodes", "cost", "precision")
    yield Sheet(columns, owners, f"method {method.method}")
    yield _partitions(method, method.partitions)
    pinned = [entry for entry in method.ledger if entry.pin]
    lost = Counter(entry.pin for entry in pinned if not entry.pin_kept)
    pins = [
        (str(pin), str(count), str(lost[pin] or "-"))
        for pin, count in Counter(entry.pin for entry in pinned).items()
    ]
    yield from _filled(
        Sheet(("pin", "nodes", "not taken by its plugin"), pins),
        _moved([method]),
        Sheet(("slow",), [(str(hole).removeprefix("slow: "),) for hole in holes(method)]),
        Sheet(("differs from PyTorch",), [(caveat,) for caveat in method.caveats]),
        _simplified([method]),
        fixed([method]),
        missed(Explanation(Plan((method,)))),
    )


def explanation(explanation: Explanation, every: bool) -> Iterator[Sheet]:
    """Yield the ops that fall back, the nodes that match, or all about the only matching node.

    With `every`, cells name every line and module.
    """
    query, entries = explanation.query, explanation.entries
    if len(entries) == 1 and query != Query():
        yield from _node(*entries[0])
        return
    owned = [
        ("" if index else name, str(count), owner, _kinds(explanation.precisions[name][owner]))
        for name, counts in explanation.owned.items()
        for index, (owner, count) in enumerate(counts.items())
    ]
    yield Sheet(("method", "nodes", "owner", "precision"), owned)
    yield from _filled(missed(explanation, every))
    if query not in (Query(), Query(asked=query.asked)):
        yield from nodes(explanation)
    else:
        methods = explanation.plan.methods
        yield from _filled(_moved(methods), _simplified(methods), fixed(methods))


def nodes(explanation: Explanation) -> Iterator[Sheet]:
    """Yield every plugin's verdict on the nodes that match."""
    columns = ["node", "op", "module", "owner", "precision", "pin", "plugin", "verdict", "reason"]
    several = len(explanation.plan.methods) > 1
    rows: list[tuple[str, ...]] = []
    for owner, entry in explanation.entries:
        rows += _verdicts(f"{owner.method}/{entry.node}" if several else entry.node, entry)
    yield from _filled(Sheet(columns, rows))


def _table(values: Iterable[Any], columns: str, title: str = "") -> Sheet:
    """Return a table of values, with a column for each of these attributes."""
    names = columns.split()
    rows = [tuple(_cell(getattr(value, name)) for name in names) for value in values]
    return Sheet(names, rows, title)


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        return listed(value, _NAMED)
    return f"{value:.3f}" if isinstance(value, float) else str(value or "-")


def _filled(*sheets: Sheet) -> Iterator[Sheet]:
    return (sheet for sheet in sheets if sheet.rows)


def _kinds(counts: Mapping[str, int]) -> str:
    """Return how many nodes have each precision: `int8 14, float32 8`."""
    return ", ".join(f"{precision} {count}" for precision, count in counts.items()) or "-"


def _moved(methods: Sequence[MethodPlan]) -> Sheet:
    """Return the copies and the conversions at borders, with the bytes of each value."""
    rows = []
    for method in methods:
        for each in method.moved:
            name, own = f"{method.method}/" if len(methods) > 1 else "", each.tensor
            most = ("up to " if own.dynamic else "") + size(own.size_bytes)
            ends = str(each.source), str(each.target)
            rows.append((name + own.name, *ends, most, " to ".join(each.forms) or "-"))
    return Sheet(("copy or conversion", "from", "to", "size", "precision"), rows)


def _simplified(methods: Iterable[MethodPlan]) -> Sheet:
    counts = sum((Counter(method.simplified) for method in methods), Counter[str]())
    return Sheet(("simplified", "nodes"), [(kind, str(n)) for kind, n in counts.most_common()])


def fixed(methods: Sequence[MethodPlan]) -> Sheet:
    """Return what rows of the quirks table changed, with the first line of the user's code."""
    rows = [
        (fix.row, fix.stage, method.method, listed(fix.found, _NAMED), fix.line or "-")
        for method in methods
        for fix in method.fixes
    ]
    return Sheet(("fixed", "stage", "method", "what", "line"), rows)


def _partitions(method: MethodPlan, partitions: Iterable[Partition]) -> Sheet:
    columns = ["partition", "backend", "device", "source", "nodes", "in", "out", "weights"]
    sizes = method.ledger.sizes
    return Sheet([*columns, "split by"], (_partition(p, sizes.get(p.name, 0)) for p in partitions))


def _partition(partition: Partition, nodes: int) -> tuple[str, ...]:
    note = f": {partition.device_note}" if partition.device_note else ""
    inside = [constant.size_bytes for constant in partition.constants if constant.inside]
    return (
        partition.name,
        partition.backend_id,
        str(partition.device),
        partition.device_source + note,
        str(nodes),
        _crossing(partition.inputs),
        _crossing(partition.outputs),
        f"{len(inside)} ({size(sum(inside))})" if inside else "-",
        partition.split_by or "-",
    )


def _crossing(tensors: Iterable[Tensor]) -> str:
    sizes = [tensor.size_bytes for tensor in tensors]
    total = None if None in sizes else sum(value or 0 for value in sizes)
    return f"{len(sizes)} ({size(total)})" if sizes else "0"


def _node(method: MethodPlan, entry: Entry) -> Iterator[Sheet]:
    """Yield all about one node, a row for each fact, and its partition."""
    names = ["op", "source_op", "module", "line", "owner", "partition", "precision", "inputs"]
    rows = [(name.replace("_", " "), _cell(getattr(entry, name))) for name in names]
    rows.append(("pin", _pin(entry)))
    if cost := entry.cost:
        work = f"{cost.flops:,} FLOPs, {size(cost.moved_bytes)} moved"
        rows.append(("cost", "none at run time" if cost.vanishes else work))
    rows += [(verdict.plugin, f"{verdict.code} {verdict.text}") for verdict in entry.verdicts]
    for group in method.ledger.groups:
        if entry.node in group.nodes:
            rows.append((f"group of {group.plugin}", f"{', '.join(group.nodes)} {group.why}"))
    for each in method.moved:
        if each.tensor.name in {entry.node, *entry.inputs}:
            forms = f", {' to '.join(each.forms)}" if each.forms else ""
            kind = "conversion" if forms else "copy"
            rows.append((f"{kind} of {each.tensor.name}", f"{each.source} to {each.target}{forms}"))
    filled = [row for row in rows if row[1] != "-"]
    yield Sheet((f"{method.method}/{entry.node}", ""), filled)
    own = [partition for partition in method.partitions if partition.name == entry.partition]
    yield from _filled(_partitions(method, own))


def _pin(entry: Entry) -> str:
    return f"{entry.pin}{'' if entry.pin_kept else ' (not kept)'}" if entry.pin else "-"


def _verdicts(name: str, entry: Entry) -> Iterator[tuple[str, ...]]:
    owner, precision = entry.partition or entry.holder, entry.precision or "-"
    about = (name, entry.op, entry.module or "-", owner, precision, _pin(entry))
    said = [(v.plugin, v.code, v.text) for v in entry.verdicts]
    for index, cells in enumerate(said or [("-", "-", "no plugin was asked")]):
        # A node's name and op stand before its first verdict only.
        yield (*(("",) * len(about) if index else about), *cells)


def changes(difference: Difference) -> str:
    """Say in one line how many nodes moved, and how the first figures changed."""
    count = len(difference.nodes)
    moved = [counted(count, "node moved", "nodes moved")] if count else []
    figures = [f"{one.what} {one.before} → {one.after}" for one in difference.figures]
    parts = [f"other {part.kind}" for part in difference.parts[:1]]
    return listed([*moved, *figures] or parts, _CHANGES)


def missed(explanation: Explanation, every: bool = False) -> Sheet:
    """Return the ops that fall back, or that the query's plugin doesn't own, with reason and line.

    With `every`, cells name every line and module.
    """
    plugin = explanation.query.asked
    title = f"not {plugin}'s" if plugin else "on portable kernels"
    rows, several = [], len(explanation.plan.methods) > 1
    for item in explanation.missed:
        op = f"{item.method}: {item.op}" if several else item.op
        owner = [item.owner or "-"] if plugin else []
        where = listed(item.lines or item.modules, None if every else _NAMED)
        cost = item.share or "-"
        rows.append((op, str(len(item.nodes)), cost, *owner, together(item.reasons), where))
    return Sheet((title, "nodes", "cost", *(["owner"] if plugin else []), "why", "where"), rows)
