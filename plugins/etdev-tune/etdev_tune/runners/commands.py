"""Commands that start a Python on a target: through ssh, adb, or a template of the user's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

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


def of_template(text: str) -> Command:
    """Read a template such as `docker exec -i box {command}`.

    Raises:
        RunError: It is not a template.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise RunError(text, f"can't be read as a command ({error})", _EXAMPLE) from error
    if sum(word in (WORDS, QUOTED, ARGUMENTS) for word in words) != 1 or words[0] == QUOTED:
        what = f"is not a runner: a command has one word {WORDS}, {QUOTED} or {ARGUMENTS}"
        raise RunError(text, what, f"take local, ssh:host or adb, or {_EXAMPLE}")
    return Command(text, words)


def of_host(text: str) -> Command:
    """Read `host`, `user@host` or `host:/path/to/python`.

    Raises:
        RunError: It names no host, or one that ssh would take for an option.
    """
    host, _, python = text.partition(":")
    if not host or _is_option(host):
        cure = "write ssh:host or ssh:user@host:/path/to/python, and ports in ~/.ssh/config"
        raise RunError(f"ssh:{text}", "names no host", cure)
    return Command(f"ssh:{text}", (*_SSH, host, QUOTED), python or "python3", "ssh")


def of_serial(text: str) -> Command:
    """Read empty text, `SERIAL`, `SERIAL:/path/to/python` or `:/path/to/python`.

    The serial number of a device in the network contains a port.

    Raises:
        RunError: It has a serial number that adb would take for an option.
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
