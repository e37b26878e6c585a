"""Every file that a command writes, where it can't be written and where the disk is full.

The folder that can't be written is a file, which stops root too. The full disk is a fake at the one
place where etdev opens what it writes: only the file in question finds no room. The real one, a
limit of the process on what it may write, is used where that is the first file.
"""

from __future__ import annotations

import tempfile

import pytest
from support.shell import MLP, disks, invoke, succeeds
from support.shell.disks import PATH, fails_and_leaves_all_as_it_was, no_room, no_room_at_all

LOWER = f"lower {MLP} --plugin cpu --no-cache"
# Command, with the place of its files; the file that can't be written; the cure.
WRITES = {
    "lower -o": (f"{LOWER} -o {{}}/net.pte", "net.pte", PATH),
    "lower --lock": (f"{LOWER} -o net.pte --lock {{}}/net.lock", "net.lock", PATH),
    "plan --view": (f"plan {MLP} --view node-data={{}}/nodes", "reason.json", PATH),
    "run --view": ("run good.pte --profile --view node-data={}/nodes", "time.json", PATH),
}
NEW = {kind: f"new {kind} npu --into {{}}/deep/folder" for kind in ("plugin", "backend")}
OLD = sorted({name for _, name, _ in WRITES.values() if name})


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "good.pte"
    succeeds(f"{LOWER} --with-ledger -o", path)
    return path.read_bytes()


@pytest.fixture(autouse=True)
def desk(here, good, monkeypatch, tmp_path_factory):
    """A .pte, a file in the place of a folder, old files, and temporary files of this test only."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    (here / "good.pte").write_bytes(good)
    disks.lay_out(here, OLD)
    return here


@pytest.mark.parametrize("case", WRITES)
def test_a_folder_that_cannot_be_written_is_named_and_nothing_changes(case, desk):
    disks.names_a_folder_that_cannot_be_written(WRITES[case], desk)


@pytest.mark.parametrize("case", WRITES)
def test_a_full_disk_is_named_and_nothing_changes(case, desk):
    disks.names_a_full_disk(WRITES[case], desk)


@pytest.mark.parametrize("kind", NEW)
@pytest.mark.parametrize("place", ["file", "place"])
def test_a_project_is_made_whole_or_not_at_all(kind, place, desk):
    if place == "file":
        line = fails_and_leaves_all_as_it_was(NEW[kind].format(place), desk)
    else:
        with no_room_at_all():
            line = fails_and_leaves_all_as_it_was(NEW[kind].format(place), desk)
    assert line.startswith(f"{place}/deep/folder/")
    assert line.endswith("choose a folder that can be written with --into DIR")


@pytest.mark.parametrize("place", ["file", "place"])
def test_a_cache_that_cannot_be_written_is_a_warning(place, desk):
    words = f"lower {MLP} --plugin cpu -o other.pte --cache {place}/kept"
    with no_room(""):
        done = invoke(words)
    assert done.exit_code == 0
    assert f"warning: compile cache: {place}/kept: the cache folder can't be written" in done.stderr
    assert "--cache" in done.stderr
    assert not [path for path in desk.rglob("kept/**/*") if path.is_file()]
    assert (desk / "other.pte").is_file()


def test_no_room_for_temporary_files_is_named_with_the_cure(desk):
    with no_room_at_all():
        line = fails_and_leaves_all_as_it_was("run good.pte --profile", desk)
    assert line.startswith(tempfile.gettempdir())
    assert line.endswith("make room, or set TMPDIR")
