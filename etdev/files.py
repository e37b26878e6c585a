"""Functions that write files completely or not at all, or raise an ArtifactError.

A file gets a temporary name in its folder and is then renamed. A killed process leaves its
temporary file; a process that writes the same file a week later removes it.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

from etdev.errors import ArtifactError

# A temporary file or folder that has not changed for so long belongs to a killed process.
STALE_S = 7 * 24 * 3600
_SCRATCH = "etdev-scratch-"
# The beginning of a file that may be replaced, by suffix: its format, or that etdev wrote it.
_KNOWN = {
    ".pte": rb".{4}ET\d\d",
    ".ptd": rb".{4}FT\d\d",
    ".html": rb".*<title>[^<]*etdev</title>",
    ".json": rb'\{.*"(schema|name|badge)": "etdev',
    ".lock": rb'\{.*"lock": \d',
    ".toml": rb"# Written by etdev",
    ".yaml": rb"(.*\n)?operators:",
}
_BEGINNING = 1 << 20
_forced: ContextVar[bool] = ContextVar("forced", default=False)


def write_atomically(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Give `write` an open file, which is never seen incomplete under its path.

    Raises:
        ArtifactError: It can't be written, or would replace a file that etdev doesn't write.
    """
    _check_replaceable(path)
    with writing(path), replacing(path) as file:
        write(file)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 so that it is never seen incomplete.

    What UTF-8 can't hold, such as half of a surrogate pair in a name, becomes a question mark.
    """
    write_atomically(path, lambda file: file.write(text.encode(errors="replace")))


@contextmanager
def replacing(path: Path, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces another file at the end.

    Args:
        path: The path of that other file, or of a symbolic link to it.
        durable: Write the content to the disk before the file is renamed.
    """
    path = Path(os.path.realpath(path))
    temporary = _hidden(path)
    try:
        # Opened by the open of every new file, so that it gets the permissions of one.
        with open(temporary, "xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def unseen(path: Path) -> Iterator[Path]:
    """Make a hidden folder next to a path, for files that are checked before they are published.

    Errors name its files by the paths that they will have.
    """
    folder = _hidden(path)
    with writing(path):
        folder.mkdir()
    try:
        yield folder
    except ArtifactError as error:
        if not error.who.startswith(f"{folder}{os.sep}"):
            raise
        who = str(path.parent / Path(error.who).relative_to(folder))
        raise type(error)(who, error.what, error.cure) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(files: Iterable[Path], path: Path) -> None:
    """Move files, in this order, to the folder of a path, replacing files of their names."""
    targets = {path.parent / file.name: file for file in files}
    # Checked before the first is moved, so that either all are moved or none.
    for target in targets:
        _check_replaceable(target)
    with writing(path):
        for target, file in targets.items():
            _move(file, target)


def _move(file: Path, target: Path) -> None:
    try:
        os.replace(file, os.path.realpath(target))
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # A link to another disk.
        with open(file, "rb") as moved, replacing(target) as copy:
            shutil.copyfileobj(moved, copy)


@contextmanager
def forced(force: bool) -> Iterator[None]:
    """Replace files that etdev doesn't write, too, until the context ends."""
    token = _forced.set(force)
    try:
        yield
    finally:
        _forced.reset(token)


def check_writable(path: Path, suffix: str = "") -> None:
    """Check that a file can be written to a path, before the long work.

    Raises:
        ArtifactError: It has another suffix, its folder can't be written, or it would replace a
            folder, a read-only file, or a file that etdev doesn't write, unless `forced`.
    """
    if suffix and path.suffix != suffix:
        cure = f"name it {path.stem or 'model'}{suffix}"
        raise ArtifactError(str(path), f"does not end in {suffix}", cure)
    _check_replaceable(path)
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        what = f"there is no folder {str(path.parent)!r}"
        raise ArtifactError(str(path), what, "create it first")
    with writing(path):
        try_writing(folder)


def try_writing(folder: Path) -> None:
    """Write a file in a folder and remove it: os.access tells root that it can write everywhere."""
    tempfile.TemporaryFile(dir=folder).close()


def _check_replaceable(path: Path) -> None:
    with writing(path):
        if not path.exists():
            return
        if path.is_dir():
            raise ArtifactError(str(path), "is a folder", "choose another path")
        # Its mode, too, since os.access tells root that it can write everywhere.
        if not os.access(path, os.W_OK) or not path.stat().st_mode & 0o222:
            what = "can't be written (it is read-only)"
            raise ArtifactError(str(path), what, "choose another path")
        with open(path, "rb") as file:
            beginning = file.read(_BEGINNING)
    known = re.match(_KNOWN.get(path.suffix, rb"(?!)"), beginning, re.DOTALL)
    if beginning and not known and not _forced.get():
        what = "is there already, and etdev did not write it"
        raise ArtifactError(str(path), what, "choose another path, or replace it with --force")


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder of this process."""
    with in_scratch():
        _remove_stale(Path(tempfile.gettempdir()), _SCRATCH)
        return tempfile.TemporaryDirectory(prefix=_SCRATCH, ignore_cleanup_errors=True)


@contextmanager
def in_scratch() -> Iterator[None]:
    """Turn errors of writing temporary files into an ArtifactError."""
    try:
        yield
    except OSError as error:
        raise no_room(error) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of writing a file or folder into an ArtifactError."""
    try:
        yield
    except OSError as error:
        what = f"can't be written ({error.strerror})"
        raise ArtifactError(str(path), what, "choose another path") from error


def no_room(error: OSError) -> ArtifactError:
    """Return the error about temporary files that can't be written."""
    who = tempfile.tempdir or "temporary files"
    what = f"can't be written ({error.strerror})"
    return ArtifactError(who, what, "make room, or set TMPDIR")


def _hidden(path: Path) -> Path:
    prefix = f".{path.name}.etdev-"
    _remove_stale(path.parent, prefix)
    return path.with_name(f"{prefix}{secrets.token_hex(4)}")


def _remove_stale(folder: Path, prefix: str) -> None:
    """Remove temporary files and folders that killed processes left."""
    for old in folder.glob(f"{glob.escape(prefix)}*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > STALE_S:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
