"""The files of a tuning, where they can't be written and where the disk is full."""

from __future__ import annotations

import tempfile

import pytest
from support.shell import MLP, disks
from support.shell.disks import PATH, fails_and_leaves_all_as_it_was, no_room_at_all
from support.toys.target import Scripted

TUNE = f"tune {MLP} --plugin cpu --budget 0.01s"
WRITES = {
    "program": (f"{TUNE} -o {{}}/net.pte --no-store", "net.pte", PATH),
    "registry": (f"{TUNE} -o {{}}/net.pte --no-store", "net.registry.toml", PATH),
    "lock": (f"{TUNE} -o {{}}/net.pte --no-store", "net.lock", PATH),
    "report": (f"{TUNE} -o {{}}/net.pte --no-store", "net.tuning.json", PATH),
    "store": (f"{TUNE} -o net.pte --store {{}}/kept", "", "name another with --store"),
}


@pytest.fixture(autouse=True)
def desk(here, monkeypatch, tmp_path_factory):
    """A file in the place of a folder, old files, and temporary files of this test only."""
    monkeypatch.setattr("etdev_tune.tune.open_runner", lambda *_: Scripted(lambda _: 1))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    disks.lay_out(here, [name for _, name, _ in WRITES.values() if name])
    return here


@pytest.mark.parametrize("case", WRITES)
def test_a_folder_that_cannot_be_written_is_named_and_nothing_changes(case, desk):
    disks.names_a_folder_that_cannot_be_written(WRITES[case], desk)


@pytest.mark.parametrize("case", WRITES)
def test_a_full_disk_is_named_and_nothing_changes(case, desk):
    disks.names_a_full_disk(WRITES[case], desk)


def test_a_folder_in_the_place_of_a_file_leaves_all_the_others(desk):
    (desk / "place/net.lock").unlink()
    (desk / "place/net.lock").mkdir()
    line = fails_and_leaves_all_as_it_was(f"{TUNE} -o place/net.pte --no-store", desk)
    assert line == "place/net.lock: is a folder; choose another path"


def test_no_room_for_temporary_files_is_named_with_the_cure(desk):
    with no_room_at_all():
        line = fails_and_leaves_all_as_it_was(f"{TUNE} -o other.pte --no-store", desk)
    assert line.startswith(tempfile.gettempdir())
    assert line.endswith("make room, or set TMPDIR")
