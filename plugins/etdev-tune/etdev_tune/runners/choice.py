"""The choice of a runner by its name."""

from __future__ import annotations

from etdev_tune.exchange import Runner
from etdev_tune.runners.adb import of_serial
from etdev_tune.runners.command import of_template
from etdev_tune.runners.local import Local
from etdev_tune.runners.ssh import of_host
from etdev_tune.runners.target import Target


def open_runner(text: str) -> Runner:
    """Make a runner; it is reached when it is first asked.

    Args:
        text: `local`; `ssh:host` or `ssh:user@host:/path/to/python`; `adb`, `adb:SERIAL` or
            `adb:SERIAL:/path/to/python`; or a command that starts a Python elsewhere, with
            `{command}` in its place: `docker exec -i box {command}`.

    Raises:
        RunError: It can't be understood.
    """
    if text == "local":
        return Local()
    kind, _, rest = text.partition(":")
    if kind == "ssh":
        return Target(of_host(rest))
    if kind == "adb":
        return Target(of_serial(rest))
    return Target(of_template(text))
