"""`etdev inspect` shows the contents of a .pte."""

from __future__ import annotations

from pathlib import Path

import click

from etdev.cli import options, results, tables, viewing
from etdev.cli.group import Command
from etdev.cli.progress import quieted


@click.command("inspect", cls=Command)
@options.program
@viewing.options
@options.all_rows
@options.as_json
@options.debug
def command(program: Path) -> None:
    """Show the contents of a .pte, from the file alone.

    Shows inputs and outputs, delegates with their devices, planned memory, constants, and calls of
    portable kernels. PROGRAM may be any .pte, not only one that etdev wrote.

    \b
    etdev inspect net.pte
    etdev inspect net.pte --json
    etdev inspect net.pte --html net.html

    Exit codes: 0 for success, 1 if the file can't be read, 2 for wrong usage.
    """
    viewing.check()
    # Not `working`, since nothing here needs PyTorch.
    with quieted():
        from etdev.pte.read import read

        artifact = read(program)
        viewing.write(lambda: viewing.of_artifact(program))
    results.report(artifact.to_dict, tables.artifact(artifact))
