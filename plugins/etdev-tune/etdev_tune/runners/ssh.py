"""A machine behind the system's ssh."""

from __future__ import annotations

from etdev.errors import RunError
from etdev_tune.runners.command import QUOTED, Command

# It must not ask for anything, and must notice that the other end is gone.
_OPTIONS = (
    *("-T", "-x", "-a"),
    *("-o", "BatchMode=yes"),
    *("-o", "ConnectTimeout=20"),
    *("-o", "ServerAliveInterval=15"),
    *("-o", "ServerAliveCountMax=3"),
)


def of_host(text: str) -> Command:
    """Read `host`, `user@host` or `host:/path/to/python`; the rest is in ssh's configuration.

    Raises:
        RunError: There is no host in it, or one that ssh would take for an option.
    """
    host, _, python = text.partition(":")
    if not host or host.startswith("-") or any(c.isspace() for c in host):
        raise RunError(
            f"ssh:{text}",
            "names no host",
            "write ssh:host or ssh:user@host:/path/to/python, and ports in ~/.ssh/config",
        )
    words = ("ssh", *_OPTIONS, "--", host, QUOTED)
    return Command(f"ssh:{text}", words, python or "python3", "ssh")
