"""`etdev diff` compares two plans, .pte files or locks."""

from __future__ import annotations

from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import evolve, frozen

from etdev.cli import options, results
from etdev.cli.explain import read_plan
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.errors import EtdevError
from etdev.schema.diff import outline
from etdev.schema.difference import Difference, Gained, changed
from etdev.schema.lock import Lock, is_lock
from etdev.schema.plan import Plan
from etdev.schema.report import presenters

if TYPE_CHECKING:
    from etdev.pte.artifact import Artifact


@frozen(eq=False)
class _Side:
    """One of the two files: a plan, a lock, or a .pte with or without its plan."""

    file: Path
    plan: Plan | None = None
    artifact: Artifact | None = None
    lock: Lock | None = None

    def outline(self) -> dict[str, int]:
        """Return the numbers that plans and .pte files have in common."""
        if self.artifact:
            return self.artifact.outline()
        return outline(self.plan) if self.plan else {}


@click.command("diff", cls=Command)
@click.argument("before", type=options.FILE)
@click.argument("after", type=options.FILE)
@options.all_rows
@options.as_json
@options.debug
def command(before: Path, after: Path) -> None:
    """Show the changes from BEFORE to AFTER.

    Both are plans as JSON, .pte files, or locks that etdev lower wrote.

    Two plans, or .pte files that were lowered with --with-ledger, are compared node by node:
    owners, devices, partitions, copies, bytes. A .pte without a ledger is compared by its
    delegates, copies, kernels and sizes; a lock by versions, plugins and their options, devices,
    pins, limits, and the digests of the compiled partitions.

    \b
    etdev diff old.json new.json
    etdev diff old.pte new.pte --all
    etdev diff plan.json net.pte --json
    etdev diff old.lock etdev.lock

    Exit codes: 0 if nothing changed, 1 for a change or an error, 2 for wrong usage.
    """
    # Only a .pte needs torch.
    with working() if ".pte" in (before.suffix, after.suffix) else nullcontext() as say:
        if say:
            say("read", f"{before} and {after}")
        difference = _difference(_read(before), _read(after))
    told = (
        presenters.difference(difference) if difference else [f"{after}: no change from {before}"]
    )
    results.report(difference.to_dict, told)
    if difference:
        click.get_current_context().exit(1)


def _read(file: Path) -> _Side:
    if file.suffix != ".pte" and (file.suffix == ".lock" or is_lock(file)):
        return _Side(file, lock=Lock.read(file))
    if file.suffix == ".json":
        return _Side(file, plan=read_plan(file))
    if file.suffix != ".pte":
        cure = "give the JSON of etdev plan, a .pte, or the lock of one"
        raise EtdevError(str(file), "is neither a plan, nor a .pte, nor a lock", cure)
    from etdev.pte.embedded_plan import read_ledger
    from etdev.pte.read import read

    artifact = read(file)
    return _Side(file, read_ledger(file) if artifact.ledger_bytes else None, artifact)


def _difference(before: _Side, after: _Side) -> Difference:
    names = str(before.file), str(after.file)
    if before.lock and after.lock:
        return before.lock.diff(after.lock, *names)
    if before.lock or after.lock:
        cure = "give two locks, or two of plans and .pte files"
        raise EtdevError(names[0 if before.lock else 1], "is a lock, and the other is not", cure)
    difference = Difference(*names)
    if before.plan and after.plan:
        difference = evolve(before.plan.diff(after.plan), before=names[0], after=names[1])
    if before.artifact and after.artifact:
        figures = changed(before.artifact.figures(), after.artifact.figures())
        more = [figure for figure in figures if figure not in difference.figures]
        difference = evolve(difference, figures=(*difference.figures, *more))
        digests = [f"sha256 {sha256(s.file.read_bytes()).hexdigest()}" for s in (before, after)]
        if not difference and digests[0] != digests[1]:
            return evolve(difference, parts=(Gained("contents", "", *digests),))
    elif not (before.plan and after.plan):
        return evolve(difference, figures=changed(before.outline(), after.outline()))
    return difference
