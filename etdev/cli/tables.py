"""Reports: plans, artefacts and plugins as tables for people."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

from attrs import asdict
from rich.console import Group, RenderableType
from rich.table import Table

from etdev.errors import EtdevError
from etdev.pte.artifact import Artifact, MethodArtifact
from etdev.registry.selection import Finding
from etdev.schema.ledger import Entry
from etdev.schema.plan import MethodPlan, Partition, Plan
from etdev.schema.tensors import Tensor

# More rows than this are counted instead of shown.
_ROWS = 12


def plan_report(plan: Plan) -> RenderableType:
    """Who owns what on which device, and which ops nobody takes."""
    parts: list[RenderableType] = []
    for method in plan.methods:
        parts += [_owners(method), _partitions(method)]
        if any(entry.pin for entry in method.ledger):
            parts.append(_pins(method))
        if method.copies:
            parts.append(_copies(method))
        if method.fallback:
            parts.append(_fallback(method))
    return Group(*parts)


def artifact_report(artifact: Artifact) -> RenderableType:
    """Delegates, devices and memory of a .pte."""
    head = table("file", "constants", "delegates' named data", title=artifact.path)
    head.add_row(
        size(artifact.size_bytes), size(artifact.constants_bytes), size(artifact.named_bytes)
    )
    parts: list[RenderableType] = [head]
    for method in artifact.methods:
        parts += [_delegates(method), _kernels(method)]
    return Group(*parts)


def plugins_report(findings: Sequence[Finding]) -> RenderableType:
    """Every plugin in claim order with its status."""
    rows = table("plugin", "distribution", "status", "devices", "hooks")
    for finding in findings:
        origin = f"{finding.distribution} {finding.version}".strip() or "-"
        rows.add_row(finding.name, origin, *status(finding))
    return rows


def status(finding: Finding) -> tuple[str, str, str]:
    """Status, devices and hooks of a plugin, each as text."""
    if finding.plugin is None:
        return finding.problem, "-", "-"
    hooks = " ".join(finding.plugin.hooks)
    if finding.probed is None:
        return finding.problem, "-", hooks
    devices = " ".join(str(device) for device in finding.probed.devices) or "-"
    return finding.probed.unfit or "ready", devices, hooks


def stages_report(seconds: dict[str, float]) -> RenderableType:
    """Time of each stage and of all."""
    rows = table("stage", "seconds")
    for name, value in seconds.items():
        rows.add_row(name, f"{value:.2f}")
    rows.add_row("total", f"{sum(seconds.values()):.2f}", style="bold")
    return rows


def size(count: int | None) -> str:
    """A number of bytes for people: `88.1 MiB`."""
    if count is None:
        return "unbounded"
    value, unit = float(count), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table in etdev's style."""
    made = Table(*columns, title=title, title_justify="left", header_style="bold", box=None)
    for column in made.columns[1:]:
        column.overflow = "fold"
    return made


def _owners(method: MethodPlan) -> Table:
    counts = Counter(partition.plugin for partition in method.partitions)
    rows = table("owner", "delegates", "nodes", title=f"method {method.method}")
    for owner, nodes in method.ledger.owned().items():
        rows.add_row(owner, str(counts[owner]) if owner in counts else "-", str(nodes))
    if method.copied_bytes:
        rows.add_row("stored again", "-", size(method.copied_bytes))
    return rows


def _partitions(method: MethodPlan) -> Table:
    rows = table(
        "partition", "backend", "device", "source", "nodes", "in", "out", "weights", "split by"
    )
    shown = method.partitions[:_ROWS]
    for part in shown:
        rows.add_row(
            part.name,
            part.backend_id,
            str(part.device),
            part.device_source + (f": {part.device_note}" if part.device_note else ""),
            str(len(part.nodes)),
            _crossing(part.inputs),
            _crossing(part.outputs),
            _weights(part),
            part.split_by or "-",
        )
    if len(method.partitions) > len(shown):
        rows.add_row(f"… and {len(method.partitions) - len(shown)} more")
    return rows


def _pins(method: MethodPlan) -> Table:
    rows = table("pin", "nodes", "not taken by its plugin")
    pinned = [entry for entry in method.ledger if entry.pin]
    missed = Counter(entry.pin for entry in pinned if not entry.pin_kept)
    for pin, count in Counter(entry.pin for entry in pinned).items():
        rows.add_row(str(pin), str(count), str(missed[pin] or "-"))
    return rows


def _copies(method: MethodPlan) -> Table:
    rows = table("copy", "from", "to", "size")
    for copy in method.copies[:_ROWS]:
        bound = "up to " if copy.tensor.dynamic else ""
        cells = (str(copy.source), str(copy.target), bound + size(copy.tensor.size_bytes))
        rows.add_row(copy.tensor.name, *cells)
    if len(method.copies) > _ROWS:
        rows.add_row(f"… and {len(method.copies) - _ROWS} more")
    return rows


def _fallback(method: MethodPlan) -> Table:
    rows = table("portable op", "nodes", "why not delegated")
    ops = method.ledger.fallback_ops()
    reasons: dict[str, Counter[str]] = {op: Counter() for op in ops}
    for entry in method.ledger:
        if entry.falls_back:
            for verdict in entry.verdicts:
                reasons[entry.op][f"{verdict.plugin}: {verdict.text or verdict.code}"] += 1
    for op, count in list(ops.items())[:_ROWS]:
        texts = [text for text, _ in reasons[op].most_common(2)]
        rows.add_row(op, str(count), "; ".join(texts) or "no plugin was asked")
    if len(ops) > _ROWS:
        rows.add_row(f"… and {len(ops) - _ROWS} more")
    return rows


def _crossing(tensors: Iterable[Tensor]) -> str:
    sizes = [tensor.size_bytes for tensor in tensors]
    total = None if None in sizes else sum(value or 0 for value in sizes)
    return f"{len(sizes)} ({size(total)})" if sizes else "0"


def _weights(partition: Partition) -> str:
    inside = [constant for constant in partition.constants if constant.inside]
    return f"{len(inside)} ({size(sum(c.size_bytes for c in inside))})" if inside else "-"


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
    for name, count in list(method.kernels.items())[:_ROWS]:
        rows.add_row(name, str(count))
    if len(method.kernels) > _ROWS:
        rows.add_row(f"… and {len(method.kernels) - _ROWS} more")
    return rows


def why_report(plan: Plan, node: str) -> RenderableType:
    """What every plugin said about a node, and what it is pinned by, in every method that has it.

    Raises:
        EtdevError: No method has a node of that name.
    """
    rows = table("method", "node", "op", "plugin", "verdict", "reason")
    pins = []
    for method, entry in _entries(plan, node):
        for verdict in entry.verdicts:
            cells = (entry.node, entry.op, verdict.plugin, verdict.code, verdict.text)
            rows.add_row(method, *cells)
        if entry.pin:
            kept = "" if entry.pin_kept else f", but {entry.pin.plugin} does not take it"
            pins.append(f"{method}/{entry.node} is pinned by {entry.pin}{kept}")
    return Group(rows, *pins)


def why_rows(plan: Plan, node: str) -> list[dict[str, object]]:
    """What `why_report` shows, as plain data: an entry of the ledger per method.

    Raises:
        EtdevError: No method has a node of that name.
    """
    return [{"method": method, **asdict(entry)} for method, entry in _entries(plan, node)]


def _entries(plan: Plan, node: str) -> list[tuple[str, Entry]]:
    found = [(m.method, entry) for m in plan.methods for entry in m.ledger if entry.node == node]
    if not found:
        names = [entry.node for method in plan.methods for entry in method.ledger]
        close = difflib.get_close_matches(node, names, 3)
        raise EtdevError(
            "plan", f"there is no node {node!r}", f"close are {', '.join(close)}" if close else ""
        )
    return found


def finding_row(finding: Finding) -> dict[str, object]:
    """A plugin as plain data."""
    text, devices, hooks = status(finding)
    return {
        "name": finding.name,
        "distribution": finding.distribution,
        "version": finding.version,
        "status": text,
        "ready": text == "ready",
        "devices": [] if devices == "-" else devices.split(),
        "hooks": [] if hooks == "-" else hooks.split(),
    }
