"""Sheets of a plan: owners, partitions, pins, copies, and what falls back and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from etdev.schema.partition import Partition
from etdev.schema.plan import MethodPlan
from etdev.schema.report.sheet import Sheet, size
from etdev.schema.simplification import Simplification
from etdev.schema.tensors import Tensor

# More lines than these are counted.
_PLACES = 3


def sheets(method: MethodPlan) -> Iterator[Sheet]:
    """Which plugin owns which nodes on which device, and which ops fall back and why."""
    yield _owners(method)
    yield _partitions(method)
    if any(entry.pin for entry in method.ledger):
        yield _pins(method)
    if method.copies:
        yield _copies(method)
    if method.simplified:
        columns = ("simplified", "nodes", "each of which", "where")
        yield Sheet(columns, simplified_rows(method.simplified))
    if method.fallback:
        yield _fallback(method)


def _owners(method: MethodPlan) -> Sheet:
    counts = Counter(partition.plugin for partition in method.partitions)
    rows = [
        (owner, str(counts[owner]) if owner in counts else "-", str(nodes))
        for owner, nodes in method.ledger.owned().items()
    ]
    if method.copied_bytes:
        rows.append(("stored again", "-", size(method.copied_bytes)))
    return Sheet(("owner", "delegates", "nodes"), rows, f"method {method.method}")


def _partitions(method: MethodPlan) -> Sheet:
    columns = (
        *("partition", "backend", "device", "source"),
        *("nodes", "in", "out", "weights", "split by"),
    )
    return Sheet(columns, map(_partition, method.partitions))


def _partition(partition: Partition) -> tuple[str, ...]:
    note = f": {partition.device_note}" if partition.device_note else ""
    return (
        partition.name,
        partition.backend_id,
        str(partition.device),
        partition.device_source + note,
        str(len(partition.nodes)),
        _crossing(partition.inputs),
        _crossing(partition.outputs),
        _weights(partition),
        partition.split_by or "-",
    )


def _crossing(tensors: Iterable[Tensor]) -> str:
    sizes = [tensor.size_bytes for tensor in tensors]
    total = None if None in sizes else sum(value or 0 for value in sizes)
    return f"{len(sizes)} ({size(total)})" if sizes else "0"


def _weights(partition: Partition) -> str:
    inside = [constant for constant in partition.constants if constant.inside]
    return f"{len(inside)} ({size(sum(c.size_bytes for c in inside))})" if inside else "-"


def _pins(method: MethodPlan) -> Sheet:
    pinned = [entry for entry in method.ledger if entry.pin]
    missed = Counter(entry.pin for entry in pinned if not entry.pin_kept)
    counts = Counter(entry.pin for entry in pinned)
    rows = [(str(pin), str(count), str(missed[pin] or "-")) for pin, count in counts.items()]
    return Sheet(("pin", "nodes", "not taken by its plugin"), rows)


def _copies(method: MethodPlan) -> Sheet:
    rows = []
    for copy in method.copies:
        bound = "up to " if copy.tensor.dynamic else ""
        copied = bound + size(copy.tensor.size_bytes)
        rows.append((copy.tensor.name, str(copy.source), str(copy.target), copied))
    return Sheet(("copy", "from", "to", "size"), rows)


def simplified_rows(simplified: Iterable[Simplification]) -> list[tuple[str, ...]]:
    """Nodes that were simplified, by what was the matter with them, most first, and where."""
    kinds: dict[str, list[Simplification]] = {}
    for each in simplified:
        kinds.setdefault(each.kind, []).append(each)
    return [
        (kind, str(len(nodes)), nodes[0].why, _places(nodes))
        for kind, nodes in sorted(kinds.items(), key=lambda item: -len(item[1]))
    ]


def _places(nodes: Iterable[Simplification]) -> str:
    counts = Counter(each.line or each.module for each in nodes if each.line or each.module)
    places = [place for place, _ in counts.most_common()]
    more = f" and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
    return (", ".join(places[:_PLACES]) + more) or "-"


def _fallback(method: MethodPlan) -> Sheet:
    ops = method.ledger.fallback_ops()
    reasons: dict[str, Counter[str]] = {op: Counter() for op in ops}
    for entry in method.ledger:
        if entry.falls_back:
            for verdict in entry.reasons:
                reasons[entry.op][f"{verdict.plugin}: {verdict.text or verdict.code}"] += 1
    common = {op: "; ".join(text for text, _ in reasons[op].most_common(2)) for op in ops}
    rows = [(op, str(n), common[op] or "no plugin was asked") for op, n in ops.items()]
    return Sheet(("portable op", "nodes", "why not delegated"), rows)
