"""The view `html` of etdev, which writes the page of a plan."""

from __future__ import annotations

from pathlib import Path

from attrs import asdict

from etdev.cli.viewing import Viewed
from etdev.files import check_writable
from etdev_page.layers import require_library
from etdev_page.page import Page


def check(file: Path) -> None:
    """Check that a page can be laid out and written.

    Raises:
        EtdevError: fast-sugiyama is not installed, or the file can't be written.
    """
    require_library()
    check_writable(file)


def write(file: Path, viewed: Viewed) -> None:
    """Write the page.

    Raises:
        EtdevError: The file can't be written.
    """
    Page(**asdict(viewed, recurse=False)).save(file)
