"""Every file that a command writes, where it can't be written and where the disk is full.

The folder that can't be written is a file, which stops root too. The full disk is a fake at the one
place where etdev opens what it writes: only the file in question finds no room. The real one, a
limit of the process on what it may write, is used where that is the first file.
"""

from __future__ import annotations

import errno
import io
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from shell import MLP, error_of, invoke, succeeds
from toys.runtime import WRITES_TRACES
from toys.target import Scripted

from etdev import files as etdev_files

TUNE = f"tune {MLP} --plugin cpu --budget 0.01s"
LOWER = f"lower {MLP} --plugin cpu --no-cache"
PATH = "choose another path"
# Command, with the place of its files; the file that can't be written; the cure.
WRITES = {
    "lower -o": (f"{LOWER} -o {{}}/net.pte", "net.pte", PATH),
    "lower --lock": (f"{LOWER} -o net.pte --lock {{}}/net.lock", "net.lock", PATH),
    "lower --html": (f"{LOWER} -o net.pte --html {{}}/net.html", "net.html", PATH),
    "plan --html": (f"plan {MLP} --html {{}}/net.html", "net.html", PATH),
    "plan --node-data": (f"plan {MLP} --node-data {{}}/nodes", "reason.json", PATH),
    "tune -o": (f"{TUNE} -o {{}}/net.pte --no-store", "net.pte", PATH),
    "tune's registry": (f"{TUNE} -o {{}}/net.pte --no-store", "net.registry.toml", PATH),
    "tune's lock": (f"{TUNE} -o {{}}/net.pte --no-store", "net.lock", PATH),
    "tune's report": (f"{TUNE} -o {{}}/net.pte --no-store", "net.tuning.json", PATH),
    "tune --store": (f"{TUNE} -o net.pte --store {{}}/kept", "", "name another with --store"),
    "run --trace": ("run good.pte --trace {}/trace.json", "trace.json", PATH),
    "run --node-data": ("run good.pte --profile --node-data {}/nodes", "time.json", PATH),
    "run --html": ("run good.pte --profile --html {}/net.html", "net.html", PATH),
    "inspect --html": ("inspect good.pte --html {}/net.html", "net.html", PATH),
}
NO_PAGES = pytest.mark.skipif(
    find_spec("fast_sugiyama") is None, reason="needs etdev[html], which needs Python 3.11"
)
CASES = [pytest.param(case, marks=NO_PAGES if "--html" in case else ()) for case in WRITES]
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
    monkeypatch.setattr("etdev.tuning.tune.open_runner", lambda _: Scripted(lambda _: 1))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    (here / "good.pte").write_bytes(good)
    (here / "file").write_text("a file")
    (here / "place").mkdir()
    for folder in (here, here / "place"):
        for name in OLD:
            (folder / name).write_text("old")
    return here


class _Full(io.FileIO):
    """A file on a full disk."""

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def no_room(name: str) -> Iterator[None]:
    """A disk without room for files of a name; hidden, it stands in the name of the folder or file.

    Args:
        name: The name; "" for the files of the store.
    """

    def opened(path: Path, mode: str) -> Any:
        is_full = path.name.startswith(f".{name}.") or (not name and "kept" in path.parts)
        return io.BufferedWriter(_Full(path, mode)) if is_full else open(path, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(etdev_files, "open", opened, raising=False)
        yield


@contextmanager
def no_room_at_all() -> Iterator[None]:
    """A full disk; Python ignores the signal that Linux sends instead of an error."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def fails_and_leaves_all_as_it_was(words: str, folder: Path) -> str:
    """The line that a command fails with."""
    before, scratch = content(folder), content(Path(tempfile.gettempdir()))
    done = invoke(words)
    assert (done.exit_code, done.stdout) == (1, ""), done.output
    assert content(folder) == before
    assert content(Path(tempfile.gettempdir())) == scratch
    line = error_of(done.stderr)
    assert "Traceback" not in done.stderr
    return line


def content(folder: Path) -> dict[str, bytes]:
    """Files of a folder; empty folders of the store may stay."""
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    files = {name: path.read_bytes() for name, path in paths.items() if path.is_file()}
    folders = {name: b"" for name in paths if name not in files and "kept" not in name}
    return {**files, **folders}


@pytest.mark.parametrize("case", CASES)
def test_a_folder_that_cannot_be_written_is_named_and_nothing_changes(case, desk):
    words, _, cure = WRITES[case]
    line = fails_and_leaves_all_as_it_was(words.format("file"), desk)
    assert line.startswith("file/")
    assert line.endswith((cure, "create it first"))


@pytest.mark.parametrize("case", CASES)
def test_a_full_disk_is_named_and_nothing_changes(case, desk):
    words, name, cure = WRITES[case]
    with no_room(name):
        line = fails_and_leaves_all_as_it_was(words.format("place"), desk)
    if words.startswith("run") and not WRITES_TRACES:
        assert line.startswith("good.pte: the runtime writes no trace; use ExecuTorch 1.5 or later")
        return
    folder = "place/nodes" if "nodes" in words else "place"
    who = f"{folder}/{name}" if name else "place/kept"
    assert line.startswith(f"{who}: ")
    assert line.endswith(f"can't be written (No space left on device); {cure}")


def test_a_folder_in_the_place_of_a_file_leaves_all_the_others(desk):
    (desk / "place/net.lock").unlink()
    (desk / "place/net.lock").mkdir()
    line = fails_and_leaves_all_as_it_was(f"{TUNE} -o place/net.pte --no-store", desk)
    assert line == "place/net.lock: is a folder; choose another path"


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


@pytest.mark.parametrize(
    "words",
    [f"{TUNE} -o other.pte --no-store", "run good.pte", "run good.pte --profile"],
    ids=["tune", "run", "profile"],
)
def test_no_room_for_temporary_files_is_named_with_the_cure(words, desk):
    with no_room_at_all():
        line = fails_and_leaves_all_as_it_was(words, desk)
    assert line.startswith(tempfile.gettempdir())
    assert line.endswith("make room, or set TMPDIR")
