"""Profiling: `etdev run --profile` and `--trace`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict
from rich.console import RenderableType

from etdev.cli.tables import report_of
from etdev.files import write_text
from etdev.schema.sheet import Sheet

if TYPE_CHECKING:
    from etdev.runtime.profile import Cost, Profile

# Enough to see where the time goes.
_MOST = 10


def measure(
    program: Path, values: Sequence[Any], method: str, repeat: int, data: Path | None
) -> Profile:
    """Profile a method, with the plan that the .pte carries, if it does."""
    from etdev.pte.ledger import has_ledger, read_ledger
    from etdev.runtime.profile import profile

    plan = read_ledger(program) if has_ledger(program) else None
    return profile(program, values, method, repeat, data, plan)


def report(profile: Profile, limit: int | None) -> RenderableType:
    """Show the most expensive delegates, copies and kernels, and why no plugin has the last."""
    columns = ("what", "calls", "ms", "share", "owner", "modules", "why not delegated")
    sheet = Sheet(columns, map(_cells, profile.costs), f"{profile.runs} runs")
    return report_of([sheet], limit if limit is None else _MOST)


def fields(profile: Profile) -> dict[str, Any]:
    """The same as plain data."""
    return {"runs": profile.runs, "costs": [asdict(cost) for cost in profile.costs]}


def write_trace(profile: Profile, file: Path) -> None:
    """Write every event of a run as Chrome's trace events, which Perfetto reads."""
    events = [
        {
            "name": span.name,
            "cat": "part" if span.within else "instruction",
            "ph": "X",
            "ts": span.start_us,
            "dur": span.length_us,
            "pid": 1,
            "tid": 2 if span.within else 1,
        }
        for span in profile.spans
    ]
    write_text(file, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))


def _cells(cost: Cost) -> tuple[str, ...]:
    first, *others = cost.modules or ("-",)
    modules = f"{first} and {len(others)} more" if others else first
    owner = cost.plugin or "-"
    numbers = (str(cost.calls), f"{cost.ms:.3f}", f"{cost.share:.0%}")
    return (cost.name, *numbers, owner, modules, "; ".join(cost.reasons) or "-")
