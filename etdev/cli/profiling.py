"""Profiling: `etdev run --profile`, and the files that are written of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict, frozen
from rich.console import Group, RenderableType
from rich.text import Text

from etdev.cli import nodes, viewing
from etdev.cli.tables import report_of
from etdev.files import check_writable, write_text
from etdev.schema.report.profile_sheets import sheets

if TYPE_CHECKING:
    from etdev.schema.profile import Profile

# Enough to see where the time goes.
_MOST = 10
_NO_LEDGER = "For plugins, modules and reasons, lower it --with-ledger."


@frozen
class Wanted:
    """What to do with a profile.

    Args:
        tables: Show it.
        trace: Where its trace goes.
        views: Where its views go, by name.
        folder: Where its node data goes.
    """

    tables: bool
    trace: Path | None
    views: Mapping[str, Path]
    folder: Path | None

    def check(self) -> None:
        """Refuse what makes no sense, before anything is run."""
        if self.views and not self.tables:
            name = "--html" if viewing.HTML in self.views else "--view"
            raise click.UsageError(f"{name} needs --profile")
        viewing.check(self.views)
        if self.folder:
            if not self.tables:
                raise click.UsageError("--node-data needs --profile")
            nodes.check(self.folder)
        if self.trace:
            check_writable(self.trace)

    def __bool__(self) -> bool:
        return self.tables or self.trace is not None

    def write(self, profile: Profile, program: Path) -> None:
        """Write all files that are wanted."""
        if self.trace:
            _write_trace(profile, self.trace)
        if self.views:
            viewing.write(self.views, viewing.of_artifact(program, profile=profile))
        if self.folder:
            from etdev.pte.embedded_plan import read_ledger

            nodes.write(read_ledger(program), self.folder, profile)


def measure(
    program: Path, values: Sequence[Any], method: str, repeat: int, data: Path | None
) -> Profile:
    """Profile a method, with the plan that the .pte carries, if it does."""
    from etdev.pte.embedded_plan import find_ledger
    from etdev.runtime.profile import profile

    return profile(program, values, method, repeat, data, find_ledger(program))


def report(profile: Profile, limit: int | None) -> RenderableType:
    """Show the most expensive delegates, copies and kernels, and why no plugin has the last."""
    tables = report_of(sheets(profile), limit if limit is None else _MOST)
    # Owners, modules and reasons come from the ledger.
    return tables if profile.times else Group(tables, Text(_NO_LEDGER))


def fields(profile: Profile) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "runs": profile.runs,
        "costs": [asdict(cost) for cost in profile.costs],
        "modules": [asdict(module) for module in profile.modules],
    }


def _write_trace(profile: Profile, file: Path) -> None:
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
