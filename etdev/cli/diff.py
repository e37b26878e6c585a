"""`etdev diff`: what is different in another plan or .pte."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import evolve, frozen

from etdev.cli import options, plans, results, tables
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.errors import EtdevError
from etdev.schema.difference import Difference, Gained
from etdev.schema.lock import Lock, is_lock
from etdev.schema.plan import Plan
from etdev.schema.report.diff import diff
from etdev.schema.report.diff_sheets import sheets
from etdev.schema.report.figures import changed
from etdev.schema.report.figures import outline as planned
from etdev.schema.report.lock_diff import lock_diff

if TYPE_CHECKING:
    from etdev.pte.artifact import Artifact

_CURE = "give the JSON of etdev plan, a .pte, or the lock of one"


@frozen(eq=False)
class _Side:
    """One of the two: a plan, a .pte, a .pte with its plan in it, or a lock."""

    file: Path
    plan: Plan | None = None
    artifact: Artifact | None = None
    lock: Lock | None = None

    def outline(self) -> dict[str, int]:
        """The figures that plans and .pte files have in common."""
        if self.artifact:
            return self.artifact.outline()
        return planned(self.plan) if self.plan else {}

    def contents(self) -> str:
        return f"sha256 {hashlib.sha256(self.file.read_bytes()).hexdigest()}"


@click.command("diff", cls=Command)
@click.argument("before", type=options.FILE)
@click.argument("after", type=options.FILE)
@options.all_rows
@options.as_json
@options.debug
def command(before: Path, after: Path, every: bool, as_json: bool) -> None:
    """Show what is different in AFTER.

    Both are plans as JSON, .pte files, or locks that etdev lower wrote.

    Two plans, or .pte files that were lowered with --with-ledger, are compared node by node:
    owners, devices, partitions, copies, bytes. Of a .pte without a ledger delegates, copies,
    kernels and sizes are known. Of two locks that is all the .pte files were made with: versions,
    plugins and their options, devices, pins, limits, and the digests of what was compiled.

    \b
    etdev diff old.json new.json
    etdev diff old.pte new.pte --all
    etdev diff plan.json net.pte --json
    etdev diff old.lock etdev.lock

    Exit codes: 0 if nothing changed, 1 if something did or for an error, 2 for wrong usage.
    """
    if ".pte" not in (before.suffix, after.suffix):
        difference = _difference(_read(before), _read(after))
    else:
        with working(options.debugging()) as say:
            say("read", f"{before} and {after}")
            difference = _difference(_read(before), _read(after))
    if as_json:
        results.document(difference.to_dict())
    elif difference:
        results.show(tables.report_of(sheets(difference), tables.limit(every)))
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
        raise EtdevError(str(file), "is neither a plan, nor a .pte, nor a lock", _CURE)
    from etdev.pte.embedded_plan import read_ledger
    from etdev.pte.read import read

    artifact = read(file)
    return _Side(file, read_ledger(file) if artifact.ledger_bytes else None, artifact)


def _difference(before: _Side, after: _Side) -> Difference:
    names = (str(before.file), str(after.file))
    if before.lock and after.lock:
        return lock_diff(before.lock, after.lock, *names)
    for side in (before, after):
        if side.lock:
            cure = "give two locks, or two of plans and .pte files"
            raise EtdevError(str(side.file), "is a lock, and the other is not", cure)
    difference = Difference(*names)
    if before.plan and after.plan:
        difference = diff(before.plan, after.plan, *names)
    if before.artifact and after.artifact:
        return _of_files(difference, before, after)
    if not (before.plan and after.plan):
        return evolve(difference, figures=changed(before.outline(), after.outline()))
    return difference


def _of_files(difference: Difference, before: _Side, after: _Side) -> Difference:
    """The difference of two .pte files, given that of their plans."""
    first, second = (side.artifact.figures() for side in (before, after) if side.artifact)
    more = [figure for figure in changed(first, second) if figure not in difference.figures]
    difference = evolve(difference, figures=(*difference.figures, *more))
    contents = Gained("contents", "", before.contents(), after.contents())
    if not difference and contents.before != contents.after:
        return evolve(difference, parts=(contents,))
    return difference
