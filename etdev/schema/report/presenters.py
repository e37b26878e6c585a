"""Presenters of plans, differences, profiles and explanations: each yields sheets and lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from etdev.schema.difference import Difference
from etdev.schema.ledger import Entry, together
from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.profile import Cost, Profile
from etdev.schema.report.explanation import Explanation, Query
from etdev.schema.report.sheet import Sheet, size
from etdev.schema.tensors import Tensor

# A cell names this many lines or modules, and counts the rest.
_NAMED = 3
# Why a simplified node was redundant, by kind.
_REDUNDANT = {
    "copies": "copies a value that can be read itself",
    "constants": "is decided by constants alone",
    "masks": "masks nothing, or takes more ops than it needs",
    "duplicates": "computes what was computed before",
    "scalars": "has a number in place of a constant",
    "unused": "is not read any more",
}


def sheets(value: Any) -> Iterator[Sheet]:
    """Return the sheets of a plan, of one of its methods, of a difference or of a profile."""
    presenters: dict[type, Callable[[Any], Iterator[Sheet]]]
    presenters = {Plan: plan, MethodPlan: method, Difference: difference, Profile: profile}
    return presenters[type(value)](value)


def plan(plan: Plan) -> Iterator[Sheet]:
    """Yield the sheets of every method."""
    for each in plan.methods:
        yield from method(each)


def method(method: MethodPlan) -> Iterator[Sheet]:
    """Yield owners, partitions, pins, copies, simplified nodes, and ops that fall back and why."""
    counts = Counter(partition.plugin for partition in method.partitions)
    owners = [
        (owner, str(counts[owner] or "-"), str(nodes))
        for owner, nodes in method.ledger.owned().items()
    ]
    if method.copied_bytes:
        owners.append(("stored again", "-", size(method.copied_bytes)))
    yield Sheet(("owner", "delegates", "nodes"), owners, f"method {method.method}")
    columns = ["partition", "backend", "device", "source", "nodes", "in", "out", "weights"]
    yield Sheet([*columns, "split by"], map(_partition, method.partitions))
    pinned = [entry for entry in method.ledger if entry.pin]
    missed = Counter(entry.pin for entry in pinned if not entry.pin_kept)
    pins = [
        (str(pin), str(count), str(missed[pin] or "-"))
        for pin, count in Counter(entry.pin for entry in pinned).items()
    ]
    copies = [
        (copy.tensor.name, str(copy.source), str(copy.target), _bytes(copy.tensor))
        for copy in method.copies
    ]
    yield from _filled(
        Sheet(("pin", "nodes", "not taken by its plugin"), pins),
        Sheet(("copy", "from", "to", "size"), copies),
        _simplified([method]),
        _missed(Explanation(Plan((method,))), every=False),
    )


def difference(difference: Difference) -> Iterator[Sheet]:
    """Yield the changed figures, parts, modules and nodes."""
    figures = [
        (f.what, str(f.before), str(f.after), f"{f.after - f.before:+d}")
        for f in difference.figures
    ]
    parts = [(p.kind, p.method, p.before or "-", p.after or "-") for p in difference.parts]
    modules = [
        (m.module, m.method, _counts(m.before), _counts(m.after)) for m in difference.modules
    ]
    nodes = [(n.node, n.op, n.method, n.before or "-", n.after or "-") for n in difference.nodes]
    yield from _filled(
        Sheet(("figure", "before", "after", "change"), figures),
        Sheet(("what", "method", "before", "after"), parts),
        Sheet(("module", "method", "before", "after"), modules),
        Sheet(("node", "op", "method", "before", "after"), nodes),
    )


def profile(profile: Profile) -> Iterator[Sheet]:
    """Yield the costs of a run, and those of source modules where they are known."""
    columns = ("what", "calls", "ms", "share", "owner", "modules", "why not delegated")
    yield Sheet(columns, map(_cost, profile.costs), f"{profile.runs} runs")
    modules = [
        (m.path, f"{m.ms:.3f}", f"{m.share:.0%}", str(m.delegates or "-"), str(m.portable or "-"))
        for m in profile.modules
    ]
    yield from _filled(Sheet(("module", "ms", "share", "delegates", "portable nodes"), modules))


def explanation(explanation: Explanation, every: bool) -> Iterator[Sheet | str]:
    """Yield the ops that fall back, the nodes that match, or the only matching node's story.

    With `every`, cells name every line and module.
    """
    query = explanation.query
    if len(explanation.entries) == 1 and query != Query():
        for told in explanation.told():
            yield from told.story
        return
    owned = [
        ("" if index else name, str(count), owner)
        for name, counts in explanation.owned.items()
        for index, (owner, count) in enumerate(counts.items())
    ]
    yield Sheet(("method", "nodes", "owner"), owned)
    yield from _filled(_missed(explanation, every))
    if query not in (Query(), Query(plugin=query.plugin)):
        yield from nodes(explanation, every)
    else:
        yield from _filled(_simplified(explanation.plan.methods))


def nodes(explanation: Explanation, every: bool) -> Iterator[Sheet | str]:
    """Yield every plugin's verdict on the nodes that match."""
    columns = ("node", "op", "module", "owner", "pin", "plugin", "verdict", "reason")
    several = len(explanation.plan.methods) > 1
    rows: list[tuple[str, ...]] = []
    for owner, entry in explanation.entries:
        rows += _verdicts(f"{owner.method}/{entry.node}" if several else entry.node, entry)
    yield from _filled(Sheet(columns, rows))


def _filled(*sheets: Sheet) -> Iterator[Sheet]:
    return (sheet for sheet in sheets if sheet.rows)


def _simplified(methods: Iterable[MethodPlan]) -> Sheet:
    counts = sum((Counter(method.simplified) for method in methods), Counter[str]())
    rows = [(kind, str(count), _REDUNDANT.get(kind, kind)) for kind, count in counts.most_common()]
    return Sheet(("simplified", "nodes", "each of which"), rows)


def _partition(partition: Partition) -> tuple[str, ...]:
    note = f": {partition.device_note}" if partition.device_note else ""
    inside = [constant.size_bytes for constant in partition.constants if constant.inside]
    return (
        partition.name,
        partition.backend_id,
        str(partition.device),
        partition.device_source + note,
        str(len(partition.nodes)),
        _crossing(partition.inputs),
        _crossing(partition.outputs),
        f"{len(inside)} ({size(sum(inside))})" if inside else "-",
        partition.split_by or "-",
    )


def _crossing(tensors: Iterable[Tensor]) -> str:
    sizes = [tensor.size_bytes for tensor in tensors]
    total = None if None in sizes else sum(value or 0 for value in sizes)
    return f"{len(sizes)} ({size(total)})" if sizes else "0"


def _bytes(tensor: Tensor) -> str:
    return ("up to " if tensor.dynamic else "") + size(tensor.size_bytes)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{owner} {count}" for owner, count in counts.items()) or "-"


def _cost(cost: Cost) -> tuple[str, ...]:
    numbers = (str(cost.calls), f"{cost.ms:.3f}", f"{cost.share:.0%}")
    reasons = "; ".join(cost.reasons) or "-"
    return (cost.name, *numbers, cost.plugin or "-", _listed(cost.modules, 1), reasons)


def _verdicts(name: str, entry: Entry) -> Iterator[tuple[str, ...]]:
    pin = f"{entry.pin}{'' if entry.pin_kept else ' (not kept)'}" if entry.pin else "-"
    about = (name, entry.op, entry.module or "-", entry.partition or entry.holder, pin)
    said = [(v.plugin, v.code, v.text) for v in entry.verdicts]
    for index, cells in enumerate(said or [("-", "-", "no plugin was asked")]):
        # A node's name and op stand before its first verdict only.
        yield (*(("",) * len(about) if index else about), *cells)


def _missed(explanation: Explanation, every: bool) -> Sheet:
    plugin = explanation.query.plugin
    title = f"not {plugin}'s" if plugin else "on portable kernels"
    rows = []
    for item in explanation.missed:
        owner = [item.owner or "-"] if plugin else []
        where = _listed(item.lines or item.modules, None if every else _NAMED)
        rows.append((item.op, str(len(item.nodes)), *owner, together(item.reasons), where))
    return Sheet((title, "nodes", *(["owner"] if plugin else []), "why", "where"), rows)


def _listed(names: Sequence[str], most: int | None) -> str:
    shown = names[:most]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return (", ".join(shown) or "-") + more
