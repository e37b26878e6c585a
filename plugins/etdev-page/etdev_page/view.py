"""The view `html` of etdev, which writes the page of a plan."""

from __future__ import annotations

from pathlib import Path

from attrs import asdict

from etdev.app import ProgramFile, files
from etdev.cli.viewing import Viewed
from etdev_page.page import Page


def check(file: Path) -> None:
    """Check that the page can be written.

    Raises:
        EtdevError: It can't be written.
    """
    files.check_writable(file, ".html")


def write(file: Path, viewed: Viewed) -> None:
    """Write the page.

    Raises:
        EtdevError: The file can't be written.
    """
    _page(viewed).save(file)


def _page(viewed: Viewed) -> Page:
    fields = asdict(viewed, recurse=False)
    fields["before"] = _page(viewed.before) if viewed.before else None
    if viewed.artifact and not viewed.plan.methods:
        fields["plan"] = ProgramFile(viewed.artifact.path).reconstructed_plan()
    return Page(**fields)
