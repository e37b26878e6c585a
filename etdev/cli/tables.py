"""Tables: plans and artifacts for people, on stdout."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table

from etdev.pte.artifact import Artifact, MethodArtifact
from etdev.schema.outcomes import Outcome
from etdev.schema.plan import MethodPlan, Partition, Plan
from etdev.schema.tensors import Tensor

if TYPE_CHECKING:
    from etdev.runtime.verify import Verification

# Longer tables end with the number of rows that are left out.
_ROWS = 12


def show(report: RenderableType) -> None:
    """Print a report to stdout."""
    # Piped, a table is as wide as it needs to be: cells folded at 80 columns can't be searched.
    width = None if sys.stdout.isatty() else 160
    Console(width=width).print(report, markup=False, highlight=False)


def table(*columns: str, title: str | None = None) -> Table:
    """Make an empty table in etdev's style."""
    rows = Table(*columns, title=title, title_justify="left", header_style="bold", box=None)
    for column in rows.columns[1:]:
        column.overflow = "fold"
    return rows


def size(count: int | None) -> str:
    """Write a number of bytes for people: `88.1 MiB`."""
    if count is None:
        return "unbounded"
    value, unit = float(count), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def stages_report(seconds: dict[str, float]) -> RenderableType:
    """Show the time of each stage, and of all."""
    rows = table("stage", "seconds")
    for name, value in seconds.items():
        rows.add_row(name, f"{value:.2f}")
    rows.add_row("total", f"{sum(seconds.values()):.2f}", style="bold")
    return rows


def plan_report(plan: Plan) -> RenderableType:
    """Show which plugin owns which nodes on which device, and which ops fall back and why."""
    sections: list[RenderableType] = []
    for method in plan.methods:
        sections += [_owners(method), _partitions(method)]
        if any(entry.pin for entry in method.ledger):
            sections.append(_pins(method))
        if method.copies:
            sections.append(_copies(method))
        if method.fallback:
            sections.append(_fallback(method))
    return Group(*sections)


def artifact_report(artifact: Artifact) -> RenderableType:
    """Show the delegates, devices and memory of a .pte."""
    head = table("file", "constants", "delegates' named data", title=artifact.path)
    head.add_row(
        size(artifact.size_bytes), size(artifact.constants_bytes), size(artifact.named_bytes)
    )
    sections: list[RenderableType] = [head]
    for method in artifact.methods:
        sections += [_delegates(method), _kernels(method)]
    return Group(*sections)


def verification_lines(verification: Verification) -> Iterator[str]:
    """Say how much agrees with PyTorch within which tolerance, and what was not verified."""
    bounds = {known.relative for known in verification.tolerances.values()}
    if verification.calls:
        within = f"within {max(bounds):g} of the largest value" if any(bounds) else "exactly"
        yield f"{verification.calls} calls agree with PyTorch {within}"
    yield from verification.unverified


def outcome_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Say how many partitions were compiled, were in the cache, or bypassed it and why."""
    counts = Counter(outcome.state for outcome in outcomes)
    if counts:
        yield "partitions: " + ", ".join(f"{state} {n}" for state, n in counts.items())
    reasons = Counter((o.state, o.why) for o in outcomes if o.why)
    for (state, why), count in reasons.items():
        # What was compiled here for want of a worker that could is kept all the same.
        yield f"not kept ({count}): {why}" if state == "bypassed" else f"{why} ({count})"


def _owners(method: MethodPlan) -> Table:
    counts = Counter(partition.plugin for partition in method.partitions)
    rows = table("owner", "delegates", "nodes", title=f"method {method.method}")
    for owner, nodes in method.ledger.owned().items():
        rows.add_row(owner, str(counts[owner]) if owner in counts else "-", str(nodes))
    if method.copied_bytes:
        rows.add_row("stored again", "-", size(method.copied_bytes))
    return rows


def _partitions(method: MethodPlan) -> Table:
    columns = ("backend", "device", "source", "nodes", "in", "out", "weights", "split by")
    rows = table("partition", *columns)
    _fill(rows, [_partition(partition) for partition in method.partitions])
    return rows


def _partition(partition: Partition) -> Sequence[str]:
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


def _pins(method: MethodPlan) -> Table:
    rows = table("pin", "nodes", "not taken by its plugin")
    pinned = [entry for entry in method.ledger if entry.pin]
    missed = Counter(entry.pin for entry in pinned if not entry.pin_kept)
    for pin, count in Counter(entry.pin for entry in pinned).items():
        rows.add_row(str(pin), str(count), str(missed[pin] or "-"))
    return rows


def _copies(method: MethodPlan) -> Table:
    rows = table("copy", "from", "to", "size")
    cells = []
    for copy in method.copies:
        bound = "up to " if copy.tensor.dynamic else ""
        copied = bound + size(copy.tensor.size_bytes)
        cells.append((copy.tensor.name, str(copy.source), str(copy.target), copied))
    _fill(rows, cells)
    return rows


def _fallback(method: MethodPlan) -> Table:
    rows = table("portable op", "nodes", "why not delegated")
    ops = method.ledger.fallback_ops()
    reasons: dict[str, Counter[str]] = {op: Counter() for op in ops}
    for entry in method.ledger:
        if entry.falls_back:
            for verdict in entry.verdicts:
                reasons[entry.op][f"{verdict.plugin}: {verdict.text or verdict.code}"] += 1
    common = {op: "; ".join(text for text, _ in reasons[op].most_common(2)) for op in ops}
    _fill(rows, [(op, str(n), common[op] or "no plugin was asked") for op, n in ops.items()])
    return rows


def _delegates(method: MethodArtifact) -> Table:
    rows = table("delegates", "device", "count", "payload", "calls", title=f"method {method.name}")
    keys = dict.fromkeys((d.backend_id, d.device) for d in method.delegates)
    for key in keys:
        same = [d for d in method.delegates if (d.backend_id, d.device) == key]
        payload, calls = sum(d.size_bytes for d in same), sum(d.calls for d in same)
        rows.add_row(key[0], str(key[1]), str(len(same)), size(payload), str(calls))
    for arena in method.arenas:
        rows.add_row("planned memory", str(arena.device), "-", size(arena.size_bytes), "-")
    for what, count in (
        ("copies to a device", method.host_to_device),
        ("copies from a device", method.device_to_host),
    ):
        if count:
            rows.add_row(what, "-", str(count), "-", "-")
    for text in method.misplaced:
        rows.add_row(f"misplaced: {text}", "-", "-", "-", "-")
    return rows


def _kernels(method: MethodArtifact) -> Table:
    rows = table("portable kernel", "calls")
    _fill(rows, [(name, str(count)) for name, count in method.kernels.items()])
    return rows


def _fill(rows: Table, cells: Sequence[Sequence[str]]) -> None:
    for row in cells[:_ROWS]:
        rows.add_row(*row)
    if len(cells) > _ROWS:
        rows.add_row(f"… and {len(cells) - _ROWS} more")
