"""Tables of a .pte: its delegates, memory, inputs, outputs and kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from etdev.cli.tables import ROWS, fill, size, table
from etdev.pte.artifact import Artifact, MethodArtifact, Value


def artifact_report(artifact: Artifact, rows: int | None = ROWS) -> RenderableType:
    """Show the inputs, outputs, delegates, devices and memory of a .pte."""
    head = table("file", "constants", "delegates' named data", "ledger", title=artifact.path)
    sizes = (artifact.size_bytes, artifact.constants_bytes, artifact.named_bytes)
    ledger = size(artifact.ledger_bytes) if artifact.ledger_bytes else "-"
    head.add_row(*map(size, sizes), ledger)
    sections: list[RenderableType] = [head]
    for method in artifact.methods:
        sections += [_delegates(method), _values(method, rows), _kernels(method, rows)]
    return Group(*sections)


def _values(method: MethodArtifact, limit: int | None) -> Table:
    rows = table("value", "type", "sizes", "device")
    cells = [*_cells("input", method.inputs), *_cells("output", method.outputs)]
    fill(rows, cells, limit)
    return rows


def _cells(kind: str, values: Sequence[Value]) -> Iterator[tuple[str, ...]]:
    for index, value in enumerate(values):
        bound = "up to " if value.dynamic else ""
        sizes = bound + (" x ".join(map(str, value.sizes)) or "one number")
        shown = sizes if value.dtype else "-"
        yield f"{kind} {index}", value.dtype or value.kind, shown, str(value.device)


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


def _kernels(method: MethodArtifact, limit: int | None) -> Table:
    rows = table("portable kernel", "calls")
    fill(rows, [(name, str(count)) for name, count in method.kernels.items()], limit)
    return rows
