"""`etdev new app` writes a C++ project that runs a .pte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from etdev.app import Command, Document, options, report, working

if TYPE_CHECKING:
    from etdev.schema.target import Target

APP = Document("etdev.app", 1)


@click.command("app", cls=Command)
@options.program
@click.argument("folder", type=options.FILE, required=False)
@options.data
@options.target
@click.option(
    "--library",
    "libraries",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="A vendor's shared library, libNAME.so, with a backend or kernels that ExecuTorch's wheel "
    "lacks; it is copied. Repeatable.",
)
@options.as_json
@options.debug
def command(
    program: Path,
    folder: Path | None,
    data: Path | None,
    target: Target | None,
    libraries: tuple[Path, ...],
) -> None:
    """Write a C++ project that runs PROGRAM, a .pte.

    FOLDER is that of the project, net-app for net.pte if left out. It has the .pte, model.h with
    the types and sizes of its inputs and outputs, main.cpp that runs it on the calls in a file,
    CMakeLists.txt, and build.sh for a CMake older than 3.28. It links those libraries of
    ExecuTorch's wheel that the .pte needs. For a target, build.sh and toolchain.cmake name its
    compiler, and the folder build can be copied there.

    \b
    etdev new app net.pte
    cd net-app
    ./build.sh
    ./build/net calls.txt
    etdev new app net.pte --target pi
    etdev new app net.pte --library libnpu_backend.so

    Exit codes: 0 for success, 1 for an error, 2 for wrong usage.
    """  # noqa: D301 - click reads the escape
    with working() as say:
        from etdev_cpp.app import write

        say("write", str(folder or ""))
        written = write(program, folder, data, target, libraries)
    files = [str(path) for path in sorted(written.rglob("*"))]
    body = {"program": str(program), "folder": str(written), "files": files}
    report(lambda: APP.stamped(body), [*files, f"\nnext: cd {written} && ./build.sh"])
