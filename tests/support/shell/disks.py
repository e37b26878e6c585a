"""Disks without room, and commands that leave everything as it was."""

from __future__ import annotations

import errno
import io
import os
import resource
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etdev import files as etdev_files
from support.shell import error_of, invoke
from support.toys.runtime import WRITES_TRACES


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


# A command, with the place of its files; the file that can't be written; the cure.
Case = tuple[str, str, str]
PATH = "choose another path"


def lay_out(folder: Path, names: Iterable[str]) -> None:
    """A file in the place of a folder, and old files of some names in two folders."""
    (folder / "file").write_text("a file")
    (folder / "place").mkdir()
    for place in (folder, folder / "place"):
        for name in names:
            (place / name).write_text("old")


def names_a_folder_that_cannot_be_written(case: Case, folder: Path) -> None:
    """Check what a command does where its folder is a file."""
    words, _, cure = case
    line = fails_and_leaves_all_as_it_was(words.format("file"), folder)
    assert line.startswith("file/")
    assert line.endswith((cure, "create it first"))


def names_a_full_disk(case: Case, folder: Path) -> None:
    """Check what a command does where its file finds no room."""
    words, name, cure = case
    with no_room(name):
        line = fails_and_leaves_all_as_it_was(words.format("place"), folder)
    if words.startswith("run") and not WRITES_TRACES:
        assert line.startswith("good.pte: the runtime writes no trace; use ExecuTorch 1.5 or later")
        return
    place = "place/nodes" if "nodes" in words else "place"
    who = f"{place}/{name}" if name else "place/kept"
    assert line.startswith(f"{who}: ")
    assert line.endswith(f"can't be written (No space left on device); {cure}")
