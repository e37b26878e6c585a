"""Errors for what ssh, a shell or the worker said went wrong, with what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from etdev.errors import RunError
from etdev_tune.runners.commands import Command
from etdev_tune.runners.connection import Lost

# What ssh writes to its standard error, what that means, and what to do.
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
_OTHER = {
    "ssh": "ssh:{host}:/path/to/python",
    "adb": "adb:SERIAL:/path/to/python",
}


def refuse(command: Command, answer: Mapping[str, Any]) -> None:
    """Raise the error that a worker's answer has, if it has one.

    Raises:
        RunError: It has.
    """
    if "error" not in answer:
        return
    text = answer["error"]
    if answer["kind"] == "disk":
        what, cure = f"its disk is full ({text})", "make room there, or point TMPDIR elsewhere"
    elif answer["kind"] == "runtime":
        what = f"its Python {command.python!r} can't load ExecuTorch ({text})"
        cure = f"pip install executorch there, or name another Python: {_other(command)}"
    else:
        what, cure = f"it failed with {text!r}", "check its temporary folder"
    raise RunError(command.name, what, cure)


def no_command(command: Command, error: OSError) -> RunError:
    """Make the error for a command that can't be started here."""
    word = command.words([])[0]
    what = f"{word!r} can't be started ({error.strerror})"
    return RunError(command.name, what, f"install {word}, or give its path")


def lost(command: Command, error: Lost, exit_code: int | None, text: str) -> RunError:
    """Make the error for a connection that ended, or over which nothing came in time.

    Args:
        command: The command that led to the target.
        error: When it happened.
        exit_code: How the command ended.
        text: What it wrote to its standard error.
    """
    said = _last_line(text)
    starting = error.during in ("connecting", "loading ExecuTorch")
    reason = f" ({said})" if said else ""
    if command.kind == "ssh" and exit_code == 255 and starting:
        return _of_ssh(command, text)
    if command.kind == "adb" and starting and said.startswith(("error: ", "adb: ")):
        cure = "see `adb devices`, and allow this machine on the device"
        return RunError(command.name, f"adb finds no such device ({said})", cure)
    if starting and (exit_code in (126, 127) or _NO_PYTHON.search(said)):
        what = f"it has no Python {command.python!r} ({said})"
        return RunError(command.name, what, f"name the one with ExecuTorch: {_other(command)}")
    if error.late:
        return RunError(command.name, f"nothing came from it while {error.during}", _AGAIN)
    if starting:
        return RunError(command.name, f"it ended before a Python answered{reason}", _PYTHON)
    return RunError(command.name, f"the connection was lost while {error.during}{reason}", _AGAIN)


def _of_ssh(command: Command, text: str) -> RunError:
    host = command.template[-2]
    for pattern, what, cure in _SSH:
        if found := re.search(rf".*({pattern}).*", text):
            said = found[0].strip()
            return RunError(command.name, f"{what} ({said})", cure.replace("HOST", host))
    what = f"ssh failed ({_last_line(text) or 'without a word'})"
    return RunError(command.name, what, f"try `ssh {host}` by hand")


def _other(command: Command) -> str:
    other = _OTHER.get(command.kind, "/path/to/python {arguments} in place of {command}")
    return other.replace("{host}", command.template[-2]) if command.kind == "ssh" else other


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
