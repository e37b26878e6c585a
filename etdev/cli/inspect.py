"""`etdev inspect`: what a .pte holds."""

from __future__ import annotations

import json
from pathlib import Path

import click

from etdev.cli import options, tables
from etdev.cli.progress import working


@click.command("inspect")
@options.program
@options.as_json
@options.debug
def command(program: Path, as_json: bool) -> None:
    """Show what a .pte holds, from the file alone.

    Shows delegates with their devices, planned memory, constants, and calls of portable kernels.
    PROGRAM may be any .pte, not only one that etdev wrote.

    \b
    etdev inspect net.pte
    etdev inspect net.pte --json

    Exit codes: 0 for success, 1 if the file can't be read, 2 for wrong usage.
    """
    with working(options.debugging()) as say:
        say("read", str(program))
        from etdev.pte.read import read

        artifact = read(program)
    if as_json:
        print(json.dumps(artifact.to_dict(), indent=2))
    else:
        tables.show(tables.artifact_report(artifact))
