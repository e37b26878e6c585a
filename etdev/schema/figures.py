"""Numbers by which two plans or two .pte files are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from etdev.schema.difference import Figure

if TYPE_CHECKING:
    from etdev.schema.plan import Plan

# Numbers by what they count, such as `forward: bytes copied at every run`.
Figures = Mapping[str, int]


def figures(plan: Plan) -> Figures:
    """Return the numbers of a plan."""
    numbers: dict[str, int] = {}
    for method in plan.methods:
        name = method.method
        for owner, count in sorted(method.ledger.owned().items()):
            numbers[f"{name}: nodes of {owner}"] = count
        copied = sum(copy.tensor.size_bytes or 0 for copy in method.copies)
        numbers[f"{name}: bytes copied at every run"] = copied
        inside = [c.size_bytes for p in method.partitions for c in p.constants if c.inside]
        numbers[f"{name}: bytes of weights inside delegates"] = sum(inside)
        numbers[f"{name}: bytes of weights stored again"] = method.copied_bytes
    return numbers | outline(plan)


def outline(plan: Plan) -> dict[str, int]:
    """Return the numbers that a plan has in common with its .pte."""
    numbers: dict[str, int] = {}
    for method in plan.methods:
        up = sum(not copy.target.is_cpu for copy in method.copies)
        delegates = ((p.backend_id, str(p.device)) for p in method.partitions)
        numbers |= outlined(method.method, delegates, up, len(method.copies) - up)
    return numbers


def outlined(
    method: str, delegates: Iterable[tuple[str, str]], up: int, down: int
) -> dict[str, int]:
    """Return the numbers of a method's delegates and copies.

    Args:
        method: Name of the method.
        delegates: Backend and device of each delegate.
        up: Number of copies to a device.
        down: Number of copies from a device.
    """
    counts = Counter(delegates)
    return {
        **{f"{method}: {b} delegates on {d}": counts[b, d] for b, d in sorted(counts)},
        f"{method}: copies to a device": up,
        f"{method}: copies from a device": down,
    }


def changed(before: Figures, after: Figures) -> tuple[Figure, ...]:
    """Return the figures that differ; a figure missing on one side is 0 there."""
    names = dict.fromkeys([*before, *after])
    rows = [Figure(name, before.get(name, 0), after.get(name, 0)) for name in names]
    return tuple(row for row in rows if row.before != row.after)
