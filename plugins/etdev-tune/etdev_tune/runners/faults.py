"""Errors for what ssh, a shell or the worker said went wrong, with what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from etdev.errors import RunError
from etdev_tune.runners.commands import Command

# Text that ssh writes to its standard error, its meaning, and what to do.
_SSH = (
    (
        r"Host key verification failed",
        "its host key is not the one known for it",
        "compare it with the host's, then accept it with `ssh HOST`",
    ),
    (r"Permission denied", "it doesn't let us in", "make `ssh HOST` log in without a password"),
    (r"Could not resolve hostname", "there is no such host", "check its name"),
    (r"Connection refused", "it takes no connection", "start its ssh server, or check the port"),
    (r"timed out|No route to host|unreachable", "it can't be reached", "check the network"),
)
_NO_PYTHON = re.compile(
    r"(not found|No such file or directory|executable file not found|can't execute)", re.IGNORECASE
)
# For a target that has ExecuTorch's executor_runner alone, say.
_PYTHON = (
    "a target is measured through a Python with ExecuTorch; give a command that starts one, or "
    "tune on a machine like it"
)
_AGAIN = "run it again: what was measured before is kept"


def refuse(command: Command, answer: Mapping[str, Any]) -> None:
    """Raise the error of a worker's answer, if it has one.

    Raises:
        RunError: The answer has an error.
    """
    if "error" not in answer:
        return
    text = answer["error"]
    if answer["kind"] == "disk":
        what, cure = f"its disk is full ({text})", "make room there, or point TMPDIR elsewhere"
    elif answer["kind"] == "runtime":
        what = f"its Python {command.python!r} can't load ExecuTorch ({text})"
        cure = f"pip install executorch there, or name another Python: {_other_python(command)}"
    else:
        what, cure = f"it failed with {text!r}", "check its temporary folder"
    raise RunError(command.name, what, cure)


def no_command(command: Command, error: OSError) -> RunError:
    """Make the error for a command that can't be started here."""
    word = command.words([])[0]
    what = f"{word!r} can't be started ({error.strerror})"
    return RunError(command.name, what, f"install {word}, or give its path")


def lost(command: Command, during: str, late: bool, exit_code: int | None, text: str) -> RunError:
    """Make the error for a connection that ended, or over which nothing came in time.

    Args:
        command: The command that led to the target.
        during: The work at that moment, in words.
        late: Nothing came in time.
        exit_code: Exit code of the command.
        text: Its standard error.
    """
    said = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    starting = during in ("connecting", "loading ExecuTorch")
    reason = f" ({said})" if said else ""
    if command.kind == "ssh" and exit_code == 255 and starting:
        what, cure = _of_ssh(command.template[-2], text, said)
    elif command.kind == "adb" and starting and said.startswith(("error: ", "adb: ")):
        what = f"adb finds no such device ({said})"
        cure = "see `adb devices`, and allow this machine on the device"
    elif starting and (exit_code in (126, 127) or _NO_PYTHON.search(said)):
        what = f"it has no Python {command.python!r} ({said})"
        cure = f"name the one with ExecuTorch: {_other_python(command)}"
    elif late:
        what, cure = f"nothing came from it while {during}", _AGAIN
    elif starting:
        what, cure = f"it ended before a Python answered{reason}", _PYTHON
    else:
        what, cure = f"the connection was lost while {during}{reason}", _AGAIN
    return RunError(command.name, what, cure)


def _of_ssh(host: str, text: str, said: str) -> tuple[str, str]:
    for pattern, what, cure in _SSH:
        if found := re.search(rf".*({pattern}).*", text):
            return f"{what} ({found[0].strip()})", cure.replace("HOST", host)
    return f"ssh failed ({said or 'without a word'})", f"try `ssh {host}` by hand"


def _other_python(command: Command) -> str:
    """Return how to name another Python of this target."""
    if command.kind == "ssh":
        return f"ssh:{command.template[-2]}:/path/to/python"
    if command.kind == "adb":
        return "adb:SERIAL:/path/to/python"
    return "/path/to/python {arguments} in place of {command}"
