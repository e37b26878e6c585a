"""`etdev diff` compares two plans, .pte files or locks."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import evolve, frozen

from etdev.cli import options, plans, results
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.errors import EtdevError
from etdev.schema.diff import outline as planned
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
        return planned(self.plan) if self.plan else {}

    def digest(self) -> str:
        return f"sha256 {hashlib.sha256(self.file.read_bytes()).hexdigest()}"


@click.command("diff", cls=Command)
@click.argument("before", type=options.FILE)
@click.argument("after", type=options.FILE)
@options.all_rows
@options.as_json
@options.debug
def command(before: Path, after: Path, every: bool, as_json: bool) -> None:
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
    if ".pte" not in (before.suffix, after.suffix):
        difference = _difference(_read(before), _read(after))
    else:
        with working() as say:
            say("read", f"{before} and {after}")
            difference = _difference(_read(before), _read(after))
    if as_json:
        results.document(difference.to_dict())
    elif difference:
        results.show(presenters.difference(difference), every)
    else:
        results.line(f"{after}: no change from {before}")
    if difference:
        click.get_current_context().exit(1)


def _read(file: Path) -> _Side:
    if file.suffix != ".pte" and (file.suffix == ".lock" or is_lock(file)):
        return _Side(file, lock=Lock.read(file))
    if file.suffix == ".json":
        return _Side(file, plan=plans.read_plan(file))
    if file.suffix != ".pte":
        cure = "give the JSON of etdev plan, a .pte, or the lock of one"
        raise EtdevError(str(file), "is neither a plan, nor a .pte, nor a lock", cure)
    from etdev.pte.embedded_plan import read_ledger
    from etdev.pte.read import read

    artifact = read(file)
    return _Side(file, read_ledger(file) if artifact.ledger_bytes else None, artifact)


def _difference(before: _Side, after: _Side) -> Difference:
    names = (str(before.file), str(after.file))
    if before.lock and after.lock:
        return before.lock.diff(after.lock, *names)
    for side in (before, after):
        if side.lock:
            cure = "give two locks, or two of plans and .pte files"
            raise EtdevError(str(side.file), "is a lock, and the other is not", cure)
    difference = Difference(*names)
    if before.plan and after.plan:
        difference = evolve(before.plan.diff(after.plan), before=names[0], after=names[1])
    if before.artifact and after.artifact:
        return _with_files(difference, before, after)
    if before.plan and after.plan:
        return difference
    return evolve(difference, figures=changed(before.outline(), after.outline()))


def _with_files(difference: Difference, before: _Side, after: _Side) -> Difference:
    """Add the differences between two .pte files to those of their plans."""
    first, second = (side.artifact.figures() for side in (before, after) if side.artifact)
    more = [figure for figure in changed(first, second) if figure not in difference.figures]
    difference = evolve(difference, figures=(*difference.figures, *more))
    contents = Gained("contents", "", before.digest(), after.digest())
    if not difference and contents.before != contents.after:
        return evolve(difference, parts=(contents,))
    return difference
