"""Writing: a .pte and its .ptd files appear complete or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from executorch.exir import ExecutorchProgramManager

from etdev.errors import ArtifactError
from etdev.files import write_atomically
from etdev.upstream.emission import external_data


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
    for name, data in external_data(program).items():
        beside = path.with_name(f"{path.stem}.{name.removesuffix('.ptd')}.ptd")
        write_atomically(beside, data.write_to_file)
    write_atomically(path, program.write_to_file, check)
    return path
