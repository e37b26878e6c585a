"""Writing: a .pte and its .ptd files appear complete or not at all."""

from __future__ import annotations

import glob
import os
import re
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from executorch.exir import ExecutorchProgramManager

from etdev.errors import ArtifactError


def write_program(
    program: ExecutorchProgramManager, path: Path, check: Callable[[Path], None] | None = None
) -> Path:
    """Write a .pte and, beside it, the .ptd files that ExecuTorch keeps data in.

    `net.pte` gets `net.NAME.ptd`, since backends give the data of every model the same name.

    Args:
        program: ExecuTorch's manager of the emitted program.
        path: Path of the .pte.
        check: Called with the .pte before it is renamed; may raise, and nothing is written then.

    Raises:
        ArtifactError: The path does not end in .pte or can't be written.
    """
    if path.suffix != ".pte":
        raise ArtifactError(str(path), "does not end in .pte", "name it model.pte")
    for name, data in (program._tensor_data or {}).items():
        beside = path.with_name(f"{path.stem}.{name.removesuffix('.ptd')}.ptd")
        write_atomically(beside, data.write_to_file)
    write_atomically(path, program.write_to_file, check)
    return path


def write_atomically(
    path: Path, write: Callable[[BinaryIO], Any], check: Callable[[Path], None] | None = None
) -> None:
    """Write a file under a temporary name and rename it, so that it is never seen incomplete."""
    try:
        with _temporary(path) as file:
            write(file)
            if check:
                file.flush()
                check(Path(file.name))
    except OSError as error:
        raise ArtifactError(
            str(path), f"can't be written ({error.strerror})", "choose another path"
        ) from error


@contextmanager
def _temporary(path: Path) -> Iterator[BinaryIO]:
    _clear(path)
    prefix = f".{path.name}.{_HOST}-{os.getpid()}."
    handle, name = tempfile.mkstemp(prefix=prefix, dir=path.parent)
    try:
        os.close(handle)
        with open(name, "wb") as file:
            yield file
        # mkstemp makes files for the owner alone; a .pte gets what any new file would.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# Others may write to a folder that several machines share.
_HOST = re.sub(r"[^A-Za-z0-9]", "", socket.gethostname()) or "host"


def _clear(path: Path) -> None:
    """Remove what processes of this machine that were killed have left of this file."""
    # On Windows there is no way to ask for a process without ending it.
    if os.name != "posix":
        return
    for old in path.parent.glob(f".{glob.escape(path.name)}.{_HOST}-*.*"):
        pid = old.name.removeprefix(f".{path.name}.{_HOST}-").partition(".")[0]
        if pid.isdigit() and not _runs(int(pid)):
            with suppress(OSError):
                old.unlink()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Another user's, or the number is none.
    except (PermissionError, OverflowError):
        return True
    return True
