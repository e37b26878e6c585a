"""Sheets of a profile: the costs of a run, and those of source modules."""

from __future__ import annotations

from collections.abc import Iterator

from etdev.schema.modules import ModuleTime
from etdev.schema.profile import Cost, Profile
from etdev.schema.report.sheet import Sheet


def sheets(profile: Profile) -> Iterator[Sheet]:
    """Yield the costs as a table, and those of modules, where they are known."""
    columns = ("what", "calls", "ms", "share", "owner", "modules", "why not delegated")
    yield Sheet(columns, map(_cells, profile.costs), f"{profile.runs} runs")
    if profile.modules:
        modules = ("module", "ms", "share", "delegates", "portable nodes")
        yield Sheet(modules, map(_module, profile.modules))


def _module(module: ModuleTime) -> tuple[str, ...]:
    times = (f"{module.ms:.3f}", f"{module.share:.0%}")
    return (module.path, *times, str(module.delegates or "-"), str(module.portable or "-"))


def _cells(cost: Cost) -> tuple[str, ...]:
    first, *others = cost.modules or ("-",)
    modules = f"{first} and {len(others)} more" if others else first
    numbers = (str(cost.calls), f"{cost.ms:.3f}", f"{cost.share:.0%}")
    reasons = "; ".join(cost.reasons) or "-"
    return (cost.name, *numbers, cost.plugin or "-", modules, reasons)
