"""Presenters of lowerings, runs and .pte files: sheets and lines for people, fields for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etdev.report.sheet import Sheet
from etdev.schema.outcomes import Outcome
from etdev.schema.tensors import loading
from etdev.schema.wording import counted, size

# How a partition got its bytes.
_STATES = {"hit": "found in the cache", "bypassed": "compiled and not cached"}

if TYPE_CHECKING:
    from etdev.pte.artifact import Artifact, MethodArtifact
    from etdev.runtime.worker import CallResult
    from etdev.schema.plan import MethodPlan, Plan
    from etdev.verify.output_error import OutputError


def stages(seconds: Mapping[str, float]) -> str:
    """Say how long all stages took, and those that took a hundredth of that, slowest first."""
    total = sum(seconds.values())
    slow = sorted((-spent, name) for name, spent in seconds.items() if spent >= total / 100)
    return f"took {total:.1f} s: {', '.join(f'{name} {-spent:.1f}' for spent, name in slow)}"


def shares(method: MethodPlan) -> str:
    """Return the delegates of a method, and each owner's nodes with their share of the cost."""
    owned, delegates = method.ledger.owned(), len(method.partitions)
    nodes, costs = sum(owned.values()), method.ledger.shares()
    parts = {name: costs.get(name, f"{count / nodes:.0%}") for name, count in owned.items()}
    texts = [f"{name} {count} ({parts[name]})" for name, count in owned.items()]
    return f"{counted(delegates, 'delegate')}, {counted(nodes, 'node')}: {', '.join(texts) or '-'}"


def memory(plan: Plan, artifact: Artifact) -> str:
    """Return the memory that a program needs at its largest sizes, as far as it is known."""
    arenas = Counter[str]()
    for own in artifact.methods:
        for arena in own.arenas:
            arenas[str(arena.device)] += arena.size_bytes
    planned = [f"{size(count)} on {device}" for device, count in arenas.items()]
    weights = {c.target: c.size_bytes for p in plan.partitions for c in p.constants if c.inside}
    held = f"{size(sum(weights.values()))} of weights in delegates"
    return f"memory: {', '.join(planned) or 'nothing'} planned, {held}, which need more to run"


def outcomes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Count the partitions that were compiled, found in the cache, or not cached and why."""
    if outcomes:
        counts = Counter(outcome.state for outcome in outcomes)
        texts = [f"{count} {_STATES.get(state, state)}" for state, count in counts.items()]
        yield f"partitions: {', '.join(texts)}"
    reasons = Counter((o.state, o.why) for o in outcomes if o.why)
    for (state, why), count in reasons.items():
        # A partition that no worker could compile is cached all the same.
        yield f"not kept ({count}): {why}" if state == "bypassed" else f"{why} ({count})"


def run_lines(
    result: CallResult, differences: Sequence[OutputError], timed: bool = True
) -> Iterator[str]:
    """Yield each output with its error against PyTorch if that is known, and the latency."""
    for index, output in enumerate(result.outputs):
        shape = tuple(output.shape) if hasattr(output, "shape") else output
        error = f", {differences[index]}" if differences else ""
        yield f"output {index}: {_kind(output)} {shape}{error}"
    if not timed:
        yield "latency: not told, since an emulator ran it"
        return
    times = result.latency_ms
    yield f"latency: {result.median_ms:.2f} ms median of {len(times)}, fastest {min(times):.2f}"


def run_fields(result: CallResult, differences: Sequence[OutputError]) -> dict[str, Any]:
    """Return outputs and latency as plain data."""
    outputs = [
        {
            "type": _kind(output),
            "shape": list(output.shape) if hasattr(output, "shape") else None,
            "max_error": differences[index].max_error if differences else None,
            "max_value": differences[index].max_value if differences else None,
        }
        for index, output in enumerate(result.outputs)
    ]
    return {"outputs": outputs, "latency_ms": list(result.latency_ms)}


def _kind(output: object) -> str:
    return str(getattr(output, "dtype", type(output).__name__)).removeprefix("torch.")


def artifact(artifact: Artifact) -> Iterator[Sheet]:
    """Yield the delegates, devices, memory, inputs, outputs and kernels of a .pte."""
    sizes = (artifact.size_bytes, artifact.constants_bytes, artifact.named_bytes)
    ledger = size(artifact.ledger_bytes) if artifact.ledger_bytes else "-"
    columns = ("file", "constants", "delegates' named data", "ledger")
    yield Sheet(columns, [(*map(size, sizes), ledger)], artifact.path)
    if artifact.state:
        yield Sheet(("state",), [(line,) for line in loading(artifact.state)])
    for method in artifact.methods:
        heads = ("delegates", "device", "count", "payload", "calls")
        yield Sheet(heads, _delegates(method), f"method {method.name}")
        yield Sheet(("value", "type", "sizes", "device"), _values(method))
        kernels = [(name, str(count)) for name, count in method.kernels.items()]
        yield Sheet(("portable kernel", "calls"), kernels)


def _delegates(method: MethodArtifact) -> Iterator[tuple[str, ...]]:
    for backend, device in dict.fromkeys((d.backend_id, d.device) for d in method.delegates):
        same = [d for d in method.delegates if (d.backend_id, d.device) == (backend, device)]
        payload, calls = sum(d.size_bytes for d in same), sum(d.calls for d in same)
        yield backend, str(device), str(len(same)), size(payload), str(calls)
    for arena in method.arenas:
        yield "planned memory", str(arena.device), "-", size(arena.size_bytes), "-"
    for name, count in (
        ("copies to a device", method.host_to_device),
        ("copies from a device", method.device_to_host),
    ):
        if count:
            yield name, "-", str(count), "-", "-"
    for text in method.misplaced:
        yield f"misplaced: {text}", "-", "-", "-", "-"


def _values(method: MethodArtifact) -> Iterator[tuple[str, ...]]:
    for kind, values in (("input", method.inputs), ("output", method.outputs)):
        for index, value in enumerate(values):
            sizes = " x ".join(map(str, value.sizes)) or "one number"
            shown = ("up to " if value.dynamic else "") + sizes if value.dtype else "-"
            yield f"{kind} {index}", value.dtype or value.kind, shown, str(value.device)
