"""Commands that start a Python on a target: through ssh, adb, or a template of the user's."""

from __future__ import annotations

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
# Kinds of a worker's errors, with what is wrong and what to do.
_ERRORS = {
    "disk": ("its disk is full", "make room there, or point TMPDIR elsewhere"),
    "runtime": ("its Python can't load ExecuTorch", "name a Python there that has it"),
    "system": ("it failed", "check its temporary folder"),
}
# The work before a worker answers for the first time.
CONNECTING = "connecting"


@frozen
class Command:
    """A command that starts a Python, as a template.

    Args:
        name: The runner's name, as the user gave it.
        template: Its words; one word stands for the Python.
        python: Path of the Python on the target.
        environment: Environment of the command; None for this process' own.
    """

    name: str
    template: tuple[str, ...]
    python: str = "python3"
    environment: Mapping[str, str] | None = None

    def words(self, arguments: Sequence[str]) -> list[str]:
        """Return the command with arguments for its Python."""
        whole = [self.python, *arguments]
        places = {WORDS: whole, QUOTED: [shlex.join(whole)], ARGUMENTS: list(arguments)}
        return [word for part in self.template for word in places.get(part, [part])]

    def refuse(self, answer: Mapping[str, Any]) -> None:
        """Raise a RunError if a worker's answer is an error."""
        if "error" in answer:
            what, cure = _ERRORS[answer["kind"]]
            raise RunError(self.name, f"{what} ({answer['error']})", cure)

    def lost(self, during: str, late: bool, text: str) -> RunError:
        """Return the error for a connection that ended, or over which nothing came in time.

        The text is the standard error of the command.
        """
        said = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
        what = f"{'nothing came from it' if late else 'the connection was lost'} while {during}"
        cure = "run it again: what was measured before is kept"
        if during == CONNECTING:
            cure = f"see that this starts a Python with ExecuTorch: {shlex.join(self.words([]))}"
        return RunError(self.name, f"{what} ({said})" if said else what, cure)


def command_of(text: str) -> Command:
    """Return the command of a runner by its name, as `open_runner` takes it, or raise a RunError.

    Names of hosts and devices never meet a shell, and no program takes them for options.
    """
    kind, _, rest = text.partition(":")
    if kind == "ssh":
        host, _, python = rest.partition(":")
        if not host:
            cure = "write ssh:host or ssh:user@host:/path/to/python, and ports in ~/.ssh/config"
            raise RunError(text, "names no host", cure)
        return Command(text, (*_SSH, host, QUOTED), python or "python3")
    if kind == "adb":
        # The serial number of a device in the network contains a port.
        serial, path, python = rest.partition(":/")
        device = ("-s", serial) if serial else ()
        # A terminal would change bytes on their way.
        words = ("adb", *device, "shell", "-T", QUOTED)
        return Command(text, words, f"/{python}" if path else "python3")
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        words = ()
    if sum(word in (WORDS, QUOTED, ARGUMENTS) for word in words) != 1 or words[0] == QUOTED:
        what = f"is not a runner: a command has one word {WORDS}, {QUOTED} or {ARGUMENTS}"
        raise RunError(text, what, f"take local, ssh:host or adb, or {_EXAMPLE}")
    return Command(text, words)
