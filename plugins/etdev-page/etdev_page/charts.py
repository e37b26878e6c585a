"""Charts of the time of stages and of a run, of memory by device, and of copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from etdev.schema.device import CPU, Device
from etdev.schema.plan import Plan

if TYPE_CHECKING:
    from etdev.pte.artifact import Artifact
    from etdev.schema.profile import Profile

# Most bars of a profile; `etdev run --profile --all` shows the rest.
_MOST = 20


@frozen
class Bar:
    """One bar.

    Args:
        label: Text next to it.
        value: Its length.
        owner: Plugin that gives its colour; empty for none.
        name: Partition or op that the page shows on a click; empty for none.
    """

    label: str
    value: float
    owner: str = ""
    name: str = ""


@frozen
class Chart:
    """Bars of one unit.

    Args:
        title: Text above the bars.
        unit: `s`, `ms` or `bytes`.
        bars: The bars from top to bottom.
        note: Text below the bars.
    """

    title: str
    unit: str
    bars: tuple[Bar, ...]
    note: str = ""


def charts(
    plan: Plan,
    artifact: Artifact | None = None,
    profile: Profile | None = None,
    stages: Mapping[str, float] | None = None,
) -> list[Chart]:
    """Return all charts that have bars."""
    every = [
        _profile(profile),
        _modules(profile),
        _stages(stages or {}),
        _file(artifact) if artifact else _weights(plan),
        _planned(artifact),
        _copies(plan),
    ]
    return [chart for chart in every if chart and any(bar.value for bar in chart.bars)]


def _profile(profile: Profile | None) -> Chart | None:
    if profile is None:
        return None
    bars = tuple(Bar(c.name, c.ms, c.plugin, c.name) for c in profile.costs[:_MOST])
    more = len(profile.costs) - len(bars)
    note = f"Median of {profile.runs} runs." + (f" {more} more are not shown." if more else "")
    return Chart("Time of a run", "ms", bars, note)


def _modules(profile: Profile | None) -> Chart | None:
    if profile is None:
        return None
    bars = tuple(Bar(module.path, module.ms) for module in profile.modules[:_MOST])
    note = "Each with all that is in it."
    return Chart("Time of modules", "ms", bars, note)


def _stages(stages: Mapping[str, float]) -> Chart:
    bars = tuple(Bar(name, seconds) for name, seconds in stages.items())
    return Chart("Time of each stage", "s", bars)


def _file(artifact: Artifact) -> Chart:
    payloads: Counter[Device] = Counter()
    for method in artifact.methods:
        for delegate in method.delegates:
            payloads[delegate.device] += delegate.size_bytes
    bars = [Bar(f"delegates on {device}", payloads[device]) for device in sorted(payloads)]
    bars += [
        Bar("delegates' named data", artifact.named_bytes),
        Bar("constants of portable kernels", artifact.constants_bytes),
        Bar("ledger", artifact.ledger_bytes),
    ]
    note = f"The file has {artifact.size_bytes:,} bytes."
    return Chart("What the file holds", "bytes", tuple(bar for bar in bars if bar.value), note)


def _planned(artifact: Artifact | None) -> Chart | None:
    if artifact is None:
        return None
    bars = [
        Bar(f"{method.name} on {arena.device}", arena.size_bytes)
        for method in artifact.methods
        for arena in method.arenas
    ]
    return Chart("Planned memory by device", "bytes", tuple(bars))


def _weights(plan: Plan) -> Chart:
    inside: Counter[Device] = Counter()
    outside: dict[str, int] = {}
    for partition in plan.partitions:
        for constant in partition.constants:
            if constant.inside:
                inside[partition.device] += constant.size_bytes
            else:
                outside[constant.name] = constant.size_bytes
    bars = [Bar(f"in delegates on {device}", inside[device]) for device in sorted(inside)]
    bars.append(Bar(f"passed to delegates, on {CPU}", sum(outside.values())))
    return Chart("Weights by device", "bytes", tuple(bar for bar in bars if bar.value))


def _copies(plan: Plan) -> Chart:
    routes: dict[tuple[Device, Device], list[int]] = {}
    for method in plan.methods:
        for copy in method.copies:
            routes.setdefault((copy.source, copy.target), []).append(copy.tensor.size_bytes or 0)
    bars = (Bar(f"{source} to {target}", sum(sizes)) for (source, target), sizes in routes.items())
    return Chart("Copied between devices at every run", "bytes", tuple(bars))


def data(drawn: Iterable[Chart]) -> Iterator[dict[str, Any]]:
    """Yield charts as plain data."""
    for chart in drawn:
        bars = [[bar.label, _short(bar.value), bar.owner, bar.name] for bar in chart.bars]
        yield {"title": chart.title, "unit": chart.unit, "bars": bars, "note": chart.note}


def _short(value: float) -> float:
    return value if isinstance(value, int) else round(value, 4)
