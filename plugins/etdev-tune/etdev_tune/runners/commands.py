"""Commands that start a Python on a target: through ssh, adb, or a template of the user's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from etdev.errors import RunError

# A template has one of these words in place of the Python: its words, one word for a shell, or its
# arguments alone, behind the path of a Python.
WORDS, QUOTED, ARGUMENTS = "{command}", "{quoted}", "{arguments}"
_EXAMPLE = f"write docker exec -i box {WORDS}, or ssh -p 2222 host {QUOTED}"
# Ask for nothing, and notice when the other end is gone; all else is in ssh's own configuration.
_SSH = (
    *("ssh", "-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3", "--"),
)
# Text that ssh writes to its standard error, its meaning, and what to do.
_SSH_ERRORS = {
    "Host key verification failed": (
        "its host key is not the one known for it",
        "compare it with the host's, then accept it with `ssh HOST`",
    ),
    "Permission denied": ("it doesn't let us in", "make `ssh HOST` log in without a password"),
    "Could not resolve hostname": ("there is no such host", "check its name"),
    "Connection refused": ("it takes no connection", "start its ssh server, or check the port"),
    "timed out|No route to host|unreachable": ("it can't be reached", "check the network"),
}
_NO_PYTHON = re.compile(
    r"(not found|No such file or directory|executable file not found|can't execute)", re.IGNORECASE
)
# For a target that has ExecuTorch's executor_runner alone, say.
_PYTHON = (
    "a target is measured through a Python with ExecuTorch; give a command that starts one, or "
    "tune on a machine like it"
)
_AGAIN = "run it again: what was measured before is kept"


@frozen
class Command:
    """A command that starts a Python, as a template.

    Args:
        name: The runner's name, as the user gave it.
        template: Its words; one word stands for the Python.
        python: Path of the Python on the target.
        kind: `local`, `ssh`, `adb` or `command`.
        environment: Environment of the command; None for this process' own.
    """

    name: str
    template: tuple[str, ...]
    python: str = "python3"
    kind: str = "command"
    environment: Mapping[str, str] | None = None

    def words(self, arguments: Sequence[str]) -> list[str]:
        """Return the command with arguments for its Python."""
        whole = [self.python, *arguments]
        places = {WORDS: whole, QUOTED: [shlex.join(whole)], ARGUMENTS: list(arguments)}
        return [word for part in self.template for word in places.get(part, [part])]

    def refuse(self, answer: Mapping[str, Any]) -> None:
        """Raise a RunError if a worker's answer is an error."""
        if "error" not in answer:
            return
        text = answer["error"]
        if answer["kind"] == "disk":
            what, cure = f"its disk is full ({text})", "make room there, or point TMPDIR elsewhere"
        elif answer["kind"] == "runtime":
            what = f"its Python {self.python!r} can't load ExecuTorch ({text})"
            cure = f"pip install executorch there, or name another Python: {self._other_python()}"
        else:
            what, cure = f"it failed with {text!r}", "check its temporary folder"
        raise RunError(self.name, what, cure)

    def not_started(self, error: OSError) -> RunError:
        """Return the error for a command that can't be started here."""
        word = self.words([])[0]
        what = f"{word!r} can't be started ({error.strerror})"
        return RunError(self.name, what, f"install {word}, or give its path")

    def lost(self, during: str, late: bool, exit_code: int | None, text: str) -> RunError:
        """Return the error for a connection that ended, or over which nothing came in time.

        Args:
            during: The work at that moment, in words.
            late: Nothing came in time.
            exit_code: Exit code of the command.
            text: Its standard error.
        """
        said = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
        starting = during in ("connecting", "loading ExecuTorch")
        reason = f" ({said})" if said else ""
        if self.kind == "ssh" and exit_code == 255 and starting:
            what, cure = _ssh_error(self.template[-2], text, said)
        elif self.kind == "adb" and starting and said.startswith(("error: ", "adb: ")):
            what = f"adb finds no such device ({said})"
            cure = "see `adb devices`, and allow this machine on the device"
        elif starting and (exit_code in (126, 127) or _NO_PYTHON.search(said)):
            what = f"it has no Python {self.python!r} ({said})"
            cure = f"name the one with ExecuTorch: {self._other_python()}"
        elif late:
            what, cure = f"nothing came from it while {during}", _AGAIN
        elif starting:
            what, cure = f"it ended before a Python answered{reason}", _PYTHON
        else:
            what, cure = f"the connection was lost while {during}{reason}", _AGAIN
        return RunError(self.name, what, cure)

    def _other_python(self) -> str:
        """Return how to name another Python of this target."""
        if self.kind == "ssh":
            return f"ssh:{self.template[-2]}:/path/to/python"
        if self.kind == "adb":
            return "adb:SERIAL:/path/to/python"
        return "/path/to/python {arguments} in place of {command}"


def of_template(text: str) -> Command:
    """Read a template such as `docker exec -i box {command}`, or raise a RunError."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise RunError(text, f"can't be read as a command ({error})", _EXAMPLE) from error
    if sum(word in (WORDS, QUOTED, ARGUMENTS) for word in words) != 1 or words[0] == QUOTED:
        what = f"is not a runner: a command has one word {WORDS}, {QUOTED} or {ARGUMENTS}"
        raise RunError(text, what, f"take local, ssh:host or adb, or {_EXAMPLE}")
    return Command(text, words)


def of_host(text: str) -> Command:
    """Read `host`, `user@host` or `host:/path/to/python`, or raise a RunError."""
    host, _, python = text.partition(":")
    if not host or _is_option(host):
        cure = "write ssh:host or ssh:user@host:/path/to/python, and ports in ~/.ssh/config"
        raise RunError(f"ssh:{text}", "names no host", cure)
    return Command(f"ssh:{text}", (*_SSH, host, QUOTED), python or "python3", "ssh")


def of_serial(text: str) -> Command:
    """Read empty text, `SERIAL`, `SERIAL:/path/to/python` or `:/path/to/python`.

    The serial number of a device in the network contains a port. One that adb would take for an
    option is a RunError.
    """
    name = f"adb:{text}" if text else "adb"
    serial, path, python = text.partition(":/")
    if _is_option(serial):
        cure = "write adb, or adb:SERIAL as `adb devices` lists it"
        raise RunError(name, "names no device", cure)
    device = ("-s", serial) if serial else ()
    # A terminal would change bytes on their way.
    words = ("adb", *device, "shell", "-T", QUOTED)
    return Command(name, words, f"/{python}" if path else "python3", "adb")


def _is_option(word: str) -> bool:
    return word.startswith("-") or any(char.isspace() for char in word)


def _ssh_error(host: str, text: str, said: str) -> tuple[str, str]:
    for pattern, (what, cure) in _SSH_ERRORS.items():
        if found := re.search(rf".*({pattern}).*", text):
            return f"{what} ({found[0].strip()})", cure.replace("HOST", host)
    return f"ssh failed ({said or 'without a word'})", f"try `ssh {host}` by hand"
