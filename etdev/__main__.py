"""The process of the command line: `etdev`, or `python -m etdev`."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress

from etdev.cli.interruption import ending_at_once

# The exit status; another one as soon as the command has ended.
_status = 1


def run() -> None:
    """Run a command, and leave at once after its last line."""
    global _status
    # Registered first, it runs after the exit functions of all others.
    atexit.register(_leave)
    try:
        with ending_at_once():
            from etdev.cli.main import main

        main(prog_name="etdev")
    except SystemExit as ended:
        _status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        raise


def _leave() -> None:
    """End without Python's own cleaning up, which takes a second or more with torch."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(_status)


if __name__ == "__main__":
    run()
