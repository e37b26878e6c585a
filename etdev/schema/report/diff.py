"""What is different in the second of two plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from etdev.schema.difference import Difference, Gained, ModuleMove, Move
from etdev.schema.ledger import Entry
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.report.alignment import aligned
from etdev.schema.report.figures import changed, figures
from etdev.schema.report.matching import described, matched, same
from etdev.schema.tensors import Copy


def diff(first: Plan, second: Plan, before: str = "before", after: str = "after") -> Difference:
    """Compare two plans.

    Args:
        first: The plan that was.
        second: The plan that is.
        before: What the first is called.
        after: What the second is called.
    """
    names = dict.fromkeys(m.method for plan in (first, second) for m in plan.methods)
    pairs = [(name, *_methods(first, second, name)) for name in names]
    nodes = [move for name, a, b in pairs for move in _moves(name, a, b)]
    return Difference(
        before,
        after,
        tuple(nodes),
        tuple(_modules(nodes, pairs)),
        (
            *(part for name, a, b in pairs for part in _parts(name, a, b)),
            *_plugins(first, second),
        ),
        changed(figures(first), figures(second)),
    )


def _methods(first: Plan, second: Plan, name: str) -> tuple[MethodPlan | None, MethodPlan | None]:
    """A method of both plans, the second with the names of the first."""
    before, after = (
        next((method for method in plan.methods if method.method == name), None)
        for plan in (first, second)
    )
    return before, aligned(before, after) if before and after else after


def _homes(method: MethodPlan | None) -> dict[str, tuple[Entry, str]]:
    """Each node with who has it and where."""
    if method is None:
        return {}
    devices = {partition.name: str(partition.device) for partition in method.partitions}
    return {
        entry.node: (entry, f"{entry.holder} on {devices.get(entry.partition or '', 'cpu')}")
        for entry in method.ledger
    }


def _moves(name: str, first: MethodPlan | None, second: MethodPlan | None) -> Iterator[Move]:
    before, after = _homes(first), _homes(second)
    for node in dict.fromkeys([*before, *after]):
        (old, was), (new, now) = before.get(node, (None, None)), after.get(node, (None, None))
        entry = new or old
        if entry and (was != now or (old and new and old.op != new.op)):
            yield Move(name, node, entry.op, entry.module, was, now)


def _modules(
    moves: Sequence[Move], pairs: Sequence[tuple[str, MethodPlan | None, MethodPlan | None]]
) -> Iterator[ModuleMove]:
    moved = dict.fromkeys((move.method, move.module) for move in moves if move.module)
    counts = {name: (_owners(a), _owners(b)) for name, a, b in pairs}
    for method, module in moved:
        before, after = (dict(side.get(module, {})) for side in counts[method])
        yield ModuleMove(method, module, before, after)


def _owners(method: MethodPlan | None) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for entry, home in _homes(method).values():
        counts.setdefault(entry.module, Counter())[home] += 1
    return counts


def _parts(name: str, first: MethodPlan | None, second: MethodPlan | None) -> Iterator[Gained]:
    if first is None or second is None:
        was, now = (None if side is None else f"method {name}" for side in (first, second))
        yield Gained("method", name, was, now)
    before, after = first.partitions if first else (), second.partitions if second else ()
    for old, new in matched(before, after):
        if old is None or new is None or not same(old, new):
            yield Gained("partition", name, described(old), described(new))
    copies = [Counter(map(_copy, method.copies if method else ())) for method in (first, second)]
    yield from (Gained("copy", name, text, None) for text in (copies[0] - copies[1]).elements())
    yield from (Gained("copy", name, None, text) for text in (copies[1] - copies[0]).elements())


def _copy(copy: Copy) -> str:
    size = "" if copy.tensor.size_bytes is None else f", {copy.tensor.size_bytes} bytes"
    return f"{copy.tensor.name} from {copy.source} to {copy.target}{size}"


def _plugins(first: Plan, second: Plan) -> Iterator[Gained]:
    before, after = (
        [f"{name} {version}".strip() for name, version in plan.plugins] for plan in (first, second)
    )
    if before != after:
        yield Gained("plugins", "", ", ".join(before) or None, ", ".join(after) or None)
