"""Functions that write files completely or not at all.

A file gets a temporary name in its folder and is then renamed. A killed process leaves its
temporary file; the next process that writes the same file removes it.
"""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from etdev.errors import ArtifactError


def write_atomically(
    path: Path, write: Callable[[BinaryIO], Any], check: Callable[[Path], None] | None = None
) -> None:
    """Write a file so that it is never seen incomplete.

    Args:
        path: Its path.
        write: Called with the open file.
        check: Called with the temporary file before it is renamed; may raise, and the file that
            was there before stays.

    Raises:
        ArtifactError: It can't be written.
    """
    try:
        with replacing(path) as file:
            write(file)
            if check:
                file.flush()
                check(Path(file.name))
    except OSError as error:
        raise unwritable(path, error) from error
    except ValueError as error:
        if "\0" not in str(path):
            raise
        raise ArtifactError(repr(str(path)), "no path has a NUL", "choose another path") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 so that it is never seen incomplete.

    What UTF-8 can't hold, such as half of a surrogate pair in a name, becomes a question mark.

    Raises:
        ArtifactError: It can't be written.
    """
    write_atomically(path, lambda file: file.write(text.encode(errors="replace")))


@contextmanager
def replacing(path: Path, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces another file at the end.

    Args:
        path: The path of that other file.
        durable: Write the content to the disk before the file is renamed.

    Raises:
        OSError: It can't be written.
    """
    _clear(path)
    # Opened by the open of every new file, so that it gets the permissions of one.
    with open(_hidden(path), "xb") as file:
        try:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            file.close()
            os.replace(file.name, path)
        except BaseException:
            # On a full disk it tries to write the rest again, and fails again.
            with suppress(OSError):
                file.close()
            Path(file.name).unlink(missing_ok=True)
            raise


@contextmanager
def unseen(path: Path) -> Iterator[Path]:
    """Make a hidden folder next to a path, for files that are checked before they are published.

    Errors name its files by the paths that they will have.

    Raises:
        ArtifactError: It can't be made there.
    """
    _clear(path)
    folder = _hidden(path)
    try:
        folder.mkdir()
    except OSError as error:
        raise unwritable(path, error) from error
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
    """Move files out of a hidden folder to the folder of a path, replacing files of their names.

    Args:
        files: The files, in the order in which they are moved.
        path: The path that an error names.

    Raises:
        ArtifactError: They can't be written there.
    """
    targets = {path.parent / file.name: file for file in files}
    # Checked before the first is moved, so that either all are moved or none.
    for target in targets:
        _refuse_folder(target)
    try:
        for target, file in targets.items():
            os.replace(file, target)
    except OSError as error:
        raise unwritable(path, error) from error


def check_program(path: Path) -> None:
    """Check that a .pte can be written to a path, before the long work.

    Raises:
        ArtifactError: It has another suffix, or is a folder, or can't be written.
    """
    if path.suffix != ".pte":
        raise ArtifactError(str(path), "does not end in .pte", "name it model.pte")
    if not path.parent.is_dir():
        what = f"there is no folder {str(path.parent)!r}"
        raise ArtifactError(str(path), what, "create it first")
    check_writable(path)


def check_writable(path: Path) -> None:
    """Check that a file can be written to a path, before the long work.

    Raises:
        ArtifactError: It can't be written.
    """
    _refuse_folder(path)
    try:
        try_writing(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error


def try_writing(folder: Path) -> None:
    """Write a file in a folder and remove it: os.access tells root that it can write everywhere.

    Raises:
        OSError: It can't be written.
    """
    tempfile.TemporaryFile(dir=folder).close()


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise ArtifactError(str(path), "is a folder", "choose another path")


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder of this process, and remove those of killed processes.

    Raises:
        ArtifactError: It can't be made.
    """
    prefix = f"etdev.{_HOST}-"
    with in_scratch():
        for old in Path(tempfile.gettempdir()).glob(f"{prefix}*.*"):
            _remove_of_dead(old, old.name.removeprefix(prefix))
        name = f"{prefix}{os.getpid()}."
        return tempfile.TemporaryDirectory(prefix=name, ignore_cleanup_errors=True)


@contextmanager
def in_scratch() -> Iterator[None]:
    """Turn errors of writing temporary files into an ArtifactError.

    Raises:
        ArtifactError: The disk is full, or the folder can't be written.
    """
    try:
        yield
    except OSError as error:
        raise no_room(error) from error


def unwritable(path: Path, error: OSError) -> ArtifactError:
    """Return the error about a file that can't be written."""
    return ArtifactError(str(path), f"can't be written ({error.strerror})", "choose another path")


def no_room(error: OSError) -> ArtifactError:
    """Return the error about temporary files that can't be written."""
    who = tempfile.tempdir or "temporary files"
    what = f"can't be written ({error.strerror})"
    return ArtifactError(who, what, "make room, or set TMPDIR")


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}.{_HOST}-{os.getpid()}.{secrets.token_hex(4)}")


# Several machines may share a folder.
_HOST = re.sub(r"[^A-Za-z0-9]", "", socket.gethostname()) or "host"


def _clear(path: Path) -> None:
    """Remove temporary files for a path that killed processes of this machine left."""
    for old in path.parent.glob(f".{glob.escape(path.name)}.{_HOST}-*.*"):
        _remove_of_dead(old, old.name.removeprefix(f".{path.name}.{_HOST}-"))


def _remove_of_dead(old: Path, rest: str) -> None:
    """Remove a file or folder, named by a process id and a dot, if that process has ended."""
    pid = rest.partition(".")[0]
    # Asking for a process on Windows would end it.
    if os.name != "posix" or not pid.isdigit() or _runs(int(pid)):
        return
    if old.is_dir():
        shutil.rmtree(old, ignore_errors=True)
        return
    with suppress(OSError):
        old.unlink()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # The process is another user's, or the number is not a process id.
    except (PermissionError, OverflowError):
        return True
    return True
