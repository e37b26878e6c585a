"""Pages: what `--html` of several commands writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etdev.files import check_writable
from etdev.schema.plan import Plan

if TYPE_CHECKING:
    from etdev.lowering.lowered import Lowered
    from etdev.pte.artifact import Artifact
    from etdev.schema.profile import Profile

_NOTE = "The file carries no ledger, so who was asked and why is not known: lower it --with-ledger."


def check(file: Path) -> None:
    """Refuse to begin where no page can be laid out or written.

    Raises:
        EtdevError: The library that does it is not installed, or the file can't be written.
    """
    from etdev.page.layers import require_library

    require_library()
    check_writable(file)


def write(file: Path, plan: Plan, title: str) -> None:
    """Write the page of a plan."""
    from etdev.page.page import Page

    Page(plan, title).save(file)


def write_lowered(file: Path, program: Path, lowered: Lowered) -> None:
    """Write the page of what was lowered, with the time of each stage."""
    from etdev.page.page import Page
    from etdev.pte.read import read

    stages = lowered.stages.seconds
    Page(lowered.plan, program.name, artifact=read(program), stages=stages).save(file)


def write_artifact(file: Path, program: Path, artifact: Artifact) -> None:
    """Write the page of a .pte."""
    from etdev.page.page import Page

    plan, note = plan_of(program)
    Page(plan, program.name, artifact=artifact, note=note).save(file)


def write_profile(file: Path, program: Path, profile: Profile) -> None:
    """Write the page of a profile."""
    from etdev.page.page import Page
    from etdev.pte.read import read

    plan, note = plan_of(program)
    Page(plan, program.name, artifact=read(program), profile=profile, note=note).save(file)


def plan_of(program: Path) -> tuple[Plan, str]:
    """The plan that a .pte carries; else what can be seen of it, and a note that says so.

    Raises:
        ArtifactError: It is not a .pte.
    """
    from etdev.pte.embedded_plan import has_ledger, read_ledger
    from etdev.pte.instructions import seen

    return (read_ledger(program), "") if has_ledger(program) else (seen(program), _NOTE)
