"""Charts of the time of stages and of a run, of memory, and of copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from etdev import Device
from etdev.schema.plan import Plan

if TYPE_CHECKING:
    from etdev.pte.artifact import Artifact
    from etdev.schema.profile import Profile

# Most bars of a profile; `etdev run --profile --all` shows the rest.
_MOST = 20

# Text next to a bar, its length, and the plugin that gives its colour, if any. The page finds the
# partition that a bar belongs to by this text.
Bar = tuple[str, float, str]


def charts(
    plan: Plan,
    artifact: Artifact | None = None,
    profile: Profile | None = None,
    stages: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Return title, unit, bars and a note of all charts that have bars."""
    every = [
        *([_times(profile)] if profile else ()),
        _chart("Time of each stage", "s", [(name, s, "") for name, s in (stages or {}).items()]),
        *(_memory(artifact) if artifact else ()),
        _copies(plan),
    ]
    return [chart for chart in every if any(length for _, length, _ in chart["bars"])]


def _chart(title: str, unit: str, bars: Iterable[Bar], note: str = "") -> dict[str, Any]:
    rows = [[label, round(length, 4), plugin] for label, length, plugin in bars]
    return {"title": title, "unit": unit, "bars": rows, "note": note}


def _times(profile: Profile) -> dict[str, Any]:
    costs = [(cost.name, cost.ms, cost.plugin) for cost in profile.costs[:_MOST]]
    more = len(profile.costs) - len(costs)
    note = f"Median of {profile.runs} runs." + (f" {more} more are not shown." if more else "")
    return _chart("Time of a run", "ms", costs, note)


def _memory(artifact: Artifact) -> list[dict[str, Any]]:
    payloads: Counter[Device] = Counter()
    for method in artifact.methods:
        for delegate in method.delegates:
            payloads[delegate.device] += delegate.size_bytes
    sizes = {f"delegates on {device}": payloads[device] for device in sorted(payloads)}
    sizes["delegates' named data"] = artifact.named_bytes
    sizes["constants of portable kernels"] = artifact.constants_bytes
    sizes["ledger"] = artifact.ledger_bytes
    planned: Counter[str] = Counter()
    for method in artifact.methods:
        for arena in method.arenas:
            planned[f"{method.name} on {arena.device}"] += arena.size_bytes
    note = f"The file has {artifact.size_bytes:,} bytes."
    return [
        _chart("What the file holds", "bytes", _sizes(sizes), note),
        _chart("Planned memory by device", "bytes", _sizes(planned)),
    ]


def _copies(plan: Plan) -> dict[str, Any]:
    routes: Counter[str] = Counter()
    for method in plan.methods:
        for copy in method.copies:
            routes[f"{copy.source} to {copy.target}"] += copy.tensor.size_bytes or 0
    return _chart("Copied between devices at every run", "bytes", _sizes(routes))


def _sizes(sizes: Mapping[str, int]) -> list[Bar]:
    return [(label, size, "") for label, size in sizes.items() if size]
