"""Tables: plans and stages for people, in reports that `results.show` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from etdev.schema.outcomes import Forecast, Outcome
from etdev.schema.plan import Plan
from etdev.schema.report import plan_sheets
from etdev.schema.report.rich_table import rich_table, table
from etdev.schema.report.sheet import ROWS, Sheet, size

if TYPE_CHECKING:
    from etdev.runtime.verify import Verification

__all__ = [
    "ROWS", "fill", "forecast_report", "limit", "outcome_lines", "plan_report", "report_of", "size",
    "stages_report", "table", "verification_fields", "verification_lines",
]  # fmt: skip
_HINT = "; --all shows them"


def limit(every: bool) -> int | None:
    """How many rows a table has at most."""
    return None if every else ROWS


def report_of(sheets: Iterable[Sheet], rows: int | None) -> RenderableType:
    """Several sheets, one below the other."""
    return Group(*(rich_table(sheet, rows, _HINT) for sheet in sheets))


def fill(rows: Table, cells: Sequence[Sequence[str]], limit: int | None) -> None:
    """Add rows to a table, and one that counts those beyond the limit."""
    shown = len(cells) if limit is None else limit
    for row in cells[:shown]:
        # As text, since `[abc]` is a glob, not a style.
        rows.add_row(*map(Text, row))
    if len(cells) > shown:
        rows.add_row(f"… and {len(cells) - shown} more{_HINT}")


def stages_report(seconds: dict[str, float]) -> RenderableType:
    """Show the time of each stage, and of all."""
    rows = table("stage", "seconds")
    for name, value in seconds.items():
        rows.add_row(name, f"{value:.2f}")
    rows.add_row("total", f"{sum(seconds.values()):.2f}", style="bold")
    return rows


def plan_report(plan: Plan, rows: int | None = ROWS) -> RenderableType:
    """Show which plugin owns which nodes on which device, and which ops fall back and why."""
    return report_of((s for method in plan.methods for s in plan_sheets.sheets(method)), rows)


def verification_lines(verification: Verification) -> Iterator[str]:
    """Say how much agrees with PyTorch within which tolerance, and what was not verified."""
    bounds = {known.relative for known in verification.tolerances.values()}
    if verification.calls:
        within = f"within {max(bounds):g} of the largest value" if any(bounds) else "exactly"
        yield f"{verification.calls} calls agree with PyTorch {within}"
    yield from verification.unverified


def verification_fields(verification: Verification | None) -> dict[str, Any] | None:
    """The same as plain data; None if nothing was verified."""
    if verification is None:
        return None
    bounds = [known.relative for known in verification.tolerances.values()]
    return {
        "calls": verification.calls,
        "tolerance": max(bounds, default=0.0),
        "unverified": list(verification.unverified),
    }


def forecast_report(told: Sequence[Forecast], rows: int | None = ROWS) -> RenderableType:
    """Show what a lowering would find in the cache."""
    counts = Counter(each.state for each in told)
    lines = [(f"{each.method}/{each.partition}", each.state, each.why) for each in told]
    title = "cache: " + (", ".join(f"{state} {n}" for state, n in counts.items()) or "nothing")
    return report_of([Sheet(("partition", "would be", "why"), lines, title)], rows)


def outcome_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Say how many partitions were compiled, were in the cache, or bypassed it and why."""
    counts = Counter(outcome.state for outcome in outcomes)
    if counts:
        yield "partitions: " + ", ".join(f"{state} {n}" for state, n in counts.items())
    reasons = Counter((o.state, o.why) for o in outcomes if o.why)
    for (state, why), count in reasons.items():
        # What was compiled here for want of a worker that could is kept all the same.
        yield f"not kept ({count}): {why}" if state == "bypassed" else f"{why} ({count})"
