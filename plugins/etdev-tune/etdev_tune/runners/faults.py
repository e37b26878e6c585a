"""Faults of a target, named: what ssh, a shell or the worker said, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from etdev.errors import RunError
from etdev_tune.runners.command import Command
from etdev_tune.runners.connection import Lost

# What ssh writes to its standard error, and what to do then.
_SSH = (
    (r"Host key verification failed", "its host key is not the one known for it", "KEY"),
    (r"Permission denied", "it doesn't let us in", "make `ssh HOST` log in without a password"),
    (r"Could not resolve hostname", "there is no such host", "check its name"),
    (r"Connection refused", "it takes no connection", "start its ssh server, or check the port"),
    (r"timed out|No route to host|unreachable", "it can't be reached", "check the network"),
)
_KEY = "compare it with the host's, then accept it with `ssh HOST`"
_NO_PYTHON = re.compile(
    r"(not found|No such file or directory|executable file not found|can't execute)", re.IGNORECASE
)
# Of a target that has ExecuTorch's executor_runner alone, say.
_PYTHON = (
    "a target is measured through a Python with ExecuTorch; give a command that starts one, or "
    "tune on a machine like it"
)
_AGAIN = "run it again: what was measured before is kept"


def refuse(command: Command, answer: Mapping[str, Any]) -> None:
    """Raise what the worker says went wrong.

    Raises:
        RunError: Its answer is an error.
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


def no_command(command: Command, word: str, error: OSError) -> RunError:
    """The command itself can't be started here."""
    what = f"{word!r} can't be started ({error.strerror})"
    return RunError(command.name, what, f"install {word}, or give its path")


def lost(command: Command, error: Lost, exit_code: int | None, text: str) -> RunError:
    """The connection ended, or nothing came over it in time.

    Args:
        command: What it was.
        error: When it happened.
        exit_code: How the command ended.
        text: What it wrote to its standard error.
    """
    said = _last_line(text)
    starting = error.during in ("connecting", "loading ExecuTorch")
    if command.kind == "ssh" and exit_code == 255 and starting:
        return _of_ssh(command, text)
    if command.kind == "adb" and starting and said.startswith(("error: ", "adb: ")):
        cure = "see `adb devices`, and allow this machine on the device"
        return RunError(command.name, f"adb finds no such device ({said})", cure)
    if (starting and exit_code in (126, 127)) or (starting and _NO_PYTHON.search(said)):
        what = f"it has no Python {command.python!r} ({said})"
        return RunError(command.name, what, f"name the one with ExecuTorch: {_other(command)}")
    if error.late:
        return RunError(command.name, f"nothing came from it while {error.during}", _AGAIN)
    reason = f" ({said})" if said else ""
    if starting:
        what = f"it ended before a Python answered{reason}"
        return RunError(command.name, what, _PYTHON)
    return RunError(command.name, f"the connection was lost while {error.during}{reason}", _AGAIN)


def _of_ssh(command: Command, text: str) -> RunError:
    host = command.template[-2]
    for pattern, what, cure in _SSH:
        if re.search(pattern, text):
            cure = _KEY if cure == "KEY" else cure
            said = next(line for line in text.splitlines() if re.search(pattern, line))
            what = f"{what} ({said.strip()})"
            return RunError(command.name, what, cure.replace("HOST", host))
    what = f"ssh failed ({_last_line(text) or 'without a word'})"
    return RunError(command.name, what, f"try `ssh {host}` by hand")


def _other(command: Command) -> str:
    if command.kind == "ssh":
        return f"ssh:{command.template[-2]}:/path/to/python"
    if command.kind == "adb":
        return "adb:SERIAL:/path/to/python"
    return "/path/to/python {arguments} in place of {command}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
