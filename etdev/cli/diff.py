"""`etdev diff` compares two plans or .pte files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import evolve

from etdev.cli import options, results, viewing
from etdev.cli.explain import read_plan
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.report import presenters
from etdev.report.difference import Difference, Gained, changed, diff
from etdev.report.sheet import Sheet
from etdev.schema.stopwatch import Listener
from etdev.schema.structuring import CONVERTER

if TYPE_CHECKING:
    from etdev.schema.profile import Profile


@click.command("diff", cls=Command)
@click.argument("before", type=options.FILE)
@click.argument("after", type=options.FILE)
@click.option("--profile", is_flag=True, help="Run both .pte files, and show their times.")
@click.option("--method", default="forward", show_default=True, help="Method that --profile runs.")
@viewing.options
@options.all_rows
@options.as_json
@options.debug
def command(before: Path, after: Path, profile: bool, method: str) -> None:
    """Show the changes from BEFORE to AFTER.

    Both are plans as JSON or .pte files. Plans, and .pte files with their ledgers, are compared
    node by node: owners, devices, partitions, bytes. Other .pte files are compared by their
    delegates, copies, kernels and sizes, then byte by byte, as are their .ptd files.

    \b
    etdev diff old.json new.json
    etdev diff old.pte new.pte --all
    etdev diff old.pte new.pte --profile --html diff.html

    Exit codes: 0 if nothing changed, 1 for a change or an error, 2 for wrong usage.
    """
    files = before, after
    are_programs = {file.suffix for file in files} == {".pte"}
    if profile and not are_programs:
        raise click.UsageError("--profile needs two .pte files")
    viewing.check()
    difference = _difference(before, after, are_programs)
    # Only a run needs torch.
    with working(runs=True) if profile else nullcontext() as say:
        profiles = [_profiled(file, method, say) for file in files] if say else []
        viewing.write(lambda: _viewed(files, profiles))
    seen = "same bytes" if are_programs else "equal plans"
    same = f"{after}: no change from {before}: {seen}"
    told = [*(presenters.sheets(difference) if difference else [same]), *_times(profiles)]
    fields = {"profiles": CONVERTER.unstructure(profiles)} if profile else {}
    results.report(lambda: {**difference.to_dict(), **fields}, told)
    if difference:
        click.get_current_context().exit(1)


def _profiled(file: Path, method: str, say: Listener) -> Profile:
    from etdev.pte.embedded_plan import find_ledger
    from etdev.runtime.inputs import random_inputs
    from etdev.runtime.profiling import profile

    say("profile", str(file))
    return profile(file, random_inputs(file, method), method, plan=find_ledger(file))


def _viewed(files: Sequence[Path], profiles: Sequence[Profile]) -> viewing.Viewed:
    before, after = (
        viewing.of_artifact(file, profile)
        if file.suffix == ".pte"
        else viewing.Viewed(read_plan(file), file.name)
        for file, profile in zip_longest(files, profiles)
    )
    return evolve(after, before=before)


def _times(profiles: Sequence[Profile]) -> Iterator[Sheet]:
    """Yield the milliseconds of both files by delegate and kernel, as far as they were run."""
    if profiles:
        times = [{cost.name: cost.ms for cost in profile.costs} for profile in profiles]
        names = dict.fromkeys(name for side in times for name in side)
        rows = [(n, *(f"{side[n]:.3f}" if n in side else "" for side in times)) for n in names]
        yield Sheet(("name", "ms before", "ms after"), rows, "Times of a run")


def _difference(before: Path, after: Path, are_programs: bool) -> Difference:
    from etdev.pte.embedded_plan import find_ledger
    from etdev.pte.ptd import find
    from etdev.pte.read import read

    was, now = map(find_ledger if are_programs else read_plan, (before, after))
    difference = diff(was, now) if was and now else Difference("", "")
    difference = evolve(difference, before=str(before), after=str(after))
    if not are_programs:
        return difference
    facts = [read(file) for file in (before, after)]
    figures = changed(*(each.figures() for each in facts))
    difference = evolve(difference, figures=(*difference.figures, *figures))
    parts = _contents("contents of the .ptd", map(find, facts, (before, after)))
    # A .pte has the digest of its .ptd in it.
    parts = parts or ([] if difference else _contents("contents", (before, after)))
    return evolve(difference, parts=(*difference.parts, *parts))


def _contents(kind: str, files: Iterable[Path | None]) -> list[Gained]:
    """Return the digests of the contents of two files if they differ."""
    was, now = (f"sha256 {sha256(f.read_bytes()).hexdigest()}" if f else "" for f in files)
    return [Gained(kind, "", was, now)] if was != now else []
