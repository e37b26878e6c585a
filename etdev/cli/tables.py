"""Presenters of lowerings and .pte files: sheets and lines for people, fields for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etdev.schema.outcomes import Forecast, Outcome
from etdev.schema.report.sheet import Sheet, size

if TYPE_CHECKING:
    from etdev.pte.artifact import Artifact, MethodArtifact
    from etdev.runtime.verify import Verification


def stages(seconds: Mapping[str, float]) -> Sheet:
    """Return the time of each stage, and of all stages."""
    times = {**seconds, "total": sum(seconds.values())}
    return Sheet(("stage", "seconds"), [(name, f"{spent:.2f}") for name, spent in times.items()])


def forecast(forecasts: Sequence[Forecast]) -> Sheet:
    """Return the partitions that a lowering would find in the cache or compile."""
    counts = Counter(each.state for each in forecasts)
    title = ", ".join(f"{state} {count}" for state, count in counts.items()) or "nothing"
    rows = [(f"{each.method}/{each.partition}", each.state, each.why) for each in forecasts]
    return Sheet(("partition", "would be", "why"), rows, f"cache: {title}")


def outcomes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Count the partitions that were compiled, found in the cache, or not cached and why."""
    counts = Counter(outcome.state for outcome in outcomes)
    if counts:
        yield "partitions: " + ", ".join(f"{state} {n}" for state, n in counts.items())
    reasons = Counter((o.state, o.why) for o in outcomes if o.why)
    for (state, why), count in reasons.items():
        # A partition that no worker could compile is cached all the same.
        yield f"not kept ({count}): {why}" if state == "bypassed" else f"{why} ({count})"


def verification(verification: Verification | None) -> Iterator[str]:
    """Say how many calls agree with PyTorch within which tolerance, and what was not verified."""
    if verification is None:
        return
    bounds = {known.relative for known in verification.tolerances.values()}
    if verification.calls:
        within = f"within {max(bounds):g} of the largest value" if any(bounds) else "exactly"
        yield f"{verification.calls} calls agree with PyTorch {within}"
    yield from verification.unverified


def verification_fields(verification: Verification | None) -> dict[str, Any] | None:
    """Return a verification as plain data; None without one."""
    if verification is None:
        return None
    bounds = [known.relative for known in verification.tolerances.values()]
    return {
        "calls": verification.calls,
        "tolerance": max(bounds, default=0.0),
        "unverified": list(verification.unverified),
    }


def artifact(artifact: Artifact) -> Iterator[Sheet]:
    """Yield the delegates, devices, memory, inputs, outputs and kernels of a .pte."""
    sizes = (artifact.size_bytes, artifact.constants_bytes, artifact.named_bytes)
    ledger = size(artifact.ledger_bytes) if artifact.ledger_bytes else "-"
    columns = ("file", "constants", "delegates' named data", "ledger")
    yield Sheet(columns, [(*map(size, sizes), ledger)], artifact.path)
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
