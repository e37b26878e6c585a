"""The page, where it can't be written and where the disk is full."""

from __future__ import annotations

import tempfile

import pytest
from support.shell import MLP, disks, succeeds
from support.shell.disks import PATH

LOWER = f"lower {MLP} --plugin cpu --no-cache"
WRITES = {
    "lower": (f"{LOWER} -o net.pte --html {{}}/net.html", "net.html", PATH),
    "plan": (f"plan {MLP} --html {{}}/net.html", "net.html", PATH),
    "run": ("run good.pte --profile --html {}/net.html", "net.html", PATH),
    "inspect": ("inspect good.pte --html {}/net.html", "net.html", PATH),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "good.pte"
    succeeds(f"{LOWER} --with-ledger -o", path)
    return path.read_bytes()


@pytest.fixture(autouse=True)
def desk(tmp_path, good, monkeypatch, tmp_path_factory):
    """A .pte, a file in the place of a folder, old files, and temporary files of this test only."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    (tmp_path / "good.pte").write_bytes(good)
    disks.lay_out(tmp_path, ["net.pte", "net.html"])
    return tmp_path


@pytest.mark.parametrize("case", WRITES)
def test_a_folder_that_cannot_be_written_is_named_and_nothing_changes(case, desk):
    disks.names_a_folder_that_cannot_be_written(WRITES[case], desk)


@pytest.mark.parametrize("case", WRITES)
def test_a_full_disk_is_named_and_nothing_changes(case, desk):
    disks.names_a_full_disk(WRITES[case], desk)
