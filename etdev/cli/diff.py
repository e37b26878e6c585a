"""`etdev diff` compares two plans or .pte files."""

from __future__ import annotations

from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path

import click
from attrs import evolve

from etdev.cli import options, results
from etdev.cli.explain import read_plan
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.schema.difference import Difference, Gained, changed
from etdev.schema.report import presenters


@click.command("diff", cls=Command)
@click.argument("before", type=options.FILE)
@click.argument("after", type=options.FILE)
@options.all_rows
@options.as_json
@options.debug
def command(before: Path, after: Path) -> None:
    """Show the changes from BEFORE to AFTER.

    Both are plans as JSON or .pte files. Plans, and .pte files that were lowered with
    --with-ledger, are compared node by node: owners, devices, partitions, bytes. Other .pte files
    are compared by their delegates, copies, kernels and sizes.

    \b
    etdev diff old.json new.json
    etdev diff old.pte new.pte --all

    Exit codes: 0 if nothing changed, 1 for a change or an error, 2 for wrong usage.
    """
    # Only a .pte needs torch.
    with working() if ".pte" in (before.suffix, after.suffix) else nullcontext() as say:
        if say:
            say("read", f"{before} and {after}")
        difference = _difference(before, after)
    told = (
        presenters.difference(difference) if difference else [f"{after}: no change from {before}"]
    )
    results.report(difference.to_dict, told)
    if difference:
        click.get_current_context().exit(1)


def _difference(before: Path, after: Path) -> Difference:
    names = str(before), str(after)
    if {before.suffix, after.suffix} == {".pte"}:
        return _between_programs(before, after)
    return evolve(read_plan(before).diff(read_plan(after)), before=names[0], after=names[1])


def _between_programs(before: Path, after: Path) -> Difference:
    from etdev.pte.embedded_plan import find_ledger
    from etdev.pte.read import read

    difference = Difference(str(before), str(after))
    was, now = find_ledger(before), find_ledger(after)
    if was and now:
        difference = evolve(was.diff(now), before=str(before), after=str(after))
    figures = changed(read(before).figures(), read(after).figures())
    difference = evolve(difference, figures=(*difference.figures, *figures))
    digests = [f"sha256 {sha256(file.read_bytes()).hexdigest()}" for file in (before, after)]
    if not difference and digests[0] != digests[1]:
        return evolve(difference, parts=(Gained("contents", "", *digests),))
    return difference
