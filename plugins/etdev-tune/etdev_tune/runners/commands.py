"""Commands that start a Python on a target: through ssh, adb, or a template of the user's."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

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


def command(target: str, arguments: Sequence[str]) -> list[str]:
    """Return the words of the command that starts Python on a target with some arguments.

    Names of hosts and devices never meet a shell, and no program takes them for options.

    Args:
        target: As `open_runner` takes it.
        arguments: Arguments of the Python there.

    Raises:
        RunError: The text names no target.
    """
    kind, _, rest = target.partition(":")
    if kind == "ssh":
        host, _, python = rest.partition(":")
        if not host:
            cure = "write ssh:host or ssh:user@host:/path/to/python, and ports in ~/.ssh/config"
            raise RunError(target, "names no host", cure)
        return [*_SSH, host, shlex.join([python or "python3", *arguments])]
    if kind == "adb":
        # The serial number of a device in the network contains a port.
        serial, path, python = rest.partition(":/")
        device = ("-s", serial) if serial else ()
        python = f"/{python}" if path else "python3"
        # A terminal would change bytes on their way.
        return ["adb", *device, "shell", "-T", shlex.join([python, *arguments])]
    try:
        words = shlex.split(target)
    except ValueError:
        words = []
    whole = ["python3", *arguments]
    places = {WORDS: whole, QUOTED: [shlex.join(whole)], ARGUMENTS: arguments}
    if sum(word in places for word in words) != 1 or words[0] == QUOTED:
        what = f"is not a runner: a command has one word {WORDS}, {QUOTED} or {ARGUMENTS}"
        raise RunError(target, what, f"take local, ssh:host or adb, or {_EXAMPLE}")
    return [word for part in words for word in places.get(part, [part])]
