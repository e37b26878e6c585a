"""The shell of the tests: the etdev command in this process or in another, and what it printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from etdev.cli.main import main

TESTS = Path(__file__).parents[2]
MLP = f"{TESTS / 'support/models/nets.py'}:mlp"


def invoke(words: str, *arguments: object) -> Result:
    """Run etdev in this process with the words of a line and further arguments."""
    return CliRunner().invoke(main, [*words.split(), *map(str, arguments)], prog_name="etdev")


def succeeds(words: str, *arguments: object) -> str:
    """What a command prints that ends well."""
    done = invoke(words, *arguments)
    assert done.exit_code == 0, done.stderr
    assert "error" not in done.stderr
    return done.stdout


def fails(words: str, *arguments: object) -> str:
    """The one line that a command fails with, which leaves the folder as it was."""
    before = _files()
    done = invoke(words, *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert _files() == before
    return error_of(done.stderr)


def error_of(stderr: str) -> str:
    """The one line of an error, after those of the progress."""
    assert "Traceback" not in stderr
    lines = stderr.splitlines()
    # The command that reduces it.
    *progress, line = lines[:-1] if lines[-1].startswith("next: etdev reduce ") else lines
    # Plugins that can't compile on this machine are named as well.
    assert all(text.endswith("…") or " is left out: " in text for text in progress)
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def process(
    *arguments: object, code: str = "main()", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run etdev, or other code that calls `main`, in a process of its own."""
    start = [sys.executable, "-c", f"import sys\nfrom etdev.cli.main import main\n{code}"]
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    # Where it is set, nothing is left in a buffer until the end, as it is for most users.
    environment.pop("PYTHONUNBUFFERED", None)
    given = {"capture_output": True, "text": True, "timeout": 300, "env": environment, **options}
    return subprocess.run([*start, *map(str, arguments)], check=False, **given)


def cells(text: str) -> list[str]:
    """The lines of a table with one space between the cells."""
    return [" ".join(line.split()) for line in text.splitlines()]


def _files() -> list[Path]:
    return sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts)
