"""The profile of `etdev run --profile`, and the files that are written of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etdev.cli import nodes, viewing
from etdev.files import check_writable, write_text
from etdev.schema.report import presenters
from etdev.schema.report.sheet import Sheet
from etdev.schema.structuring import CONVERTER

if TYPE_CHECKING:
    from etdev.schema.profile import Profile


def check(
    profiling: bool, trace: Path | None, folder: Path | None, views: Mapping[str, Path]
) -> None:
    """Check the options of a profile and that its files can be written, before anything is run.

    Args:
        profiling: Show the profile.
        trace: The file for its trace.
        folder: The folder for its node data.
        views: Files by view.
    """
    if not profiling and (views or folder):
        needing = "--html" if viewing.HTML in views else "--view" if views else "--node-data"
        raise click.UsageError(f"{needing} needs --profile")
    viewing.check(views)
    if folder:
        nodes.check(folder)
    if trace:
        check_writable(trace)


def write(
    profile: Profile,
    program: Path,
    trace: Path | None,
    folder: Path | None,
    views: Mapping[str, Path],
) -> None:
    """Write the files of a profile.

    Args:
        profile: The profile.
        program: The .pte.
        trace: The file for its trace.
        folder: The folder for its node data.
        views: Files by view.
    """
    if trace:
        _write_trace(profile, trace)
    if views:
        viewing.write(views, viewing.of_artifact(program, profile=profile))
    if folder:
        from etdev.pte.embedded_plan import read_ledger

        nodes.write(read_ledger(program), folder, profile)


def shown(profile: Profile) -> Iterator[Sheet | str]:
    """Yield the most expensive delegates, copies and kernels, and why kernels have no delegate."""
    yield from presenters.profile(profile)
    if not profile.times:
        yield "For plugins, modules and reasons, lower it --with-ledger."


def fields(profile: Profile) -> dict[str, Any]:
    """Return a profile as plain data."""
    known = {"runs": profile.runs, "costs": profile.costs, "modules": profile.modules}
    data: dict[str, Any] = CONVERTER.unstructure(known)
    return data


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
