"""A device behind the system's adb, with a Python that has ExecuTorch."""

from __future__ import annotations

from etdev.errors import RunError
from etdev_tune.runners.command import QUOTED, Command


def of_serial(text: str) -> Command:
    """Read the serial number of a device, if there are several, and the path of its Python.

    Args:
        text: Empty, `SERIAL`, `SERIAL:/path/to/python` or `:/path/to/python`; the serial number of
            a device in the network has a port.

    Raises:
        RunError: It has a serial number that adb would take for an option.
    """
    name = f"adb:{text}" if text else "adb"
    serial, path, python = text.partition(":/")
    if serial.startswith("-") or any(c.isspace() for c in serial):
        raise RunError(
            name, "names no device", "write adb, or adb:SERIAL as `adb devices` lists it"
        )
    device = ("-s", serial) if serial else ()
    # Without a terminal, which would change bytes on their way.
    words = ("adb", *device, "shell", "-T", QUOTED)
    return Command(name, words, f"/{python}" if path else "python3", "adb")
