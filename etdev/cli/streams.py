"""Streams of a command: stdout carries results alone, and C++ logs stay off the terminal.

Models and plugins may print. While a command works, Python's prints to stdout go to stderr, and the
output of C++ and of other processes is shown with --debug only; `results` alone writes to stdout.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

import click

_KEY = "etdev.results"
# Characters that a terminal would obey instead of showing: controls, the marks that turn the
# direction of text, and halves of surrogate pairs.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """Return a text without control characters, as names in files may hold some."""
    return _OBEYED.sub("\ufffd", text)


def results() -> IO[str]:
    """Return the stream for results: stdout as it was when the command began."""
    context = click.get_current_context(silent=True)
    return (context.meta.get(_KEY) if context else None) or sys.stdout


@contextmanager
def own_streams(context: click.Context, quiet: bool) -> Iterator[None]:
    """Reserve stdout for results while a command runs, and again when Python exits.

    With `quiet`, output that is not Python's is hidden, such as the logs of ExecuTorch in C++.
    """
    # None if the caller closed it.
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or sys.stdout
    if sys.__stdout__ is None or sys.__stderr__ is None:
        # Descriptors 1 and 2 may be other files by now.
        yield
        return
    out, err, saved = sys.stdout, sys.stderr, (os.dup(1), os.dup(2))
    out.flush()
    err.flush()
    results = context.meta[_KEY] = _unmoved(out, 1)
    # ExecuTorch's runtime for Python sends the logs of C++ through Python, too.
    shown = cast(Any, WithoutLogs(_unmoved(err, 2))) if quiet else err
    noise = os.open(os.devnull, os.O_WRONLY) if quiet else os.dup(2)
    try:
        os.dup2(noise, 1)
        os.dup2(noise, 2)
        sys.stdout = sys.stderr = shown
        yield
    finally:
        _flush_c()
        if quiet:
            shown.close()
        sys.stdout, sys.stderr = out, err
        os.dup2(saved[1], 2)
        os.dup2(2, 1)
        # Buffers may hold other prints, which have to go out while descriptor 1 is stderr.
        for stream in (results, out, sys.__stdout__):
            with suppress(OSError, ValueError):
                stream.flush()
        os.dup2(saved[0], 1)
        for descriptor in (*saved, noise):
            os.close(descriptor)
        if results is not out:
            # Registered last, it runs before the exit functions of the model and of plugins.
            atexit.register(_give_up_stdout)


def _give_up_stdout() -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os.dup2(2, 1)


class WithoutLogs:
    """A text stream that drops the lines which ExecuTorch's C++ logs: `[method.cpp:12] ...`.

    They come in pieces, so that a line which begins like one is held back until it ends.
    """

    _LOG = re.compile(r"\[[\w.+-]+\.(?:cpp|cc|c|hpp|h):\d+\] ")

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self._held = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        *lines, rest = (self._held + text).split("\n")
        kept = [line for line in lines if not self._LOG.match(line)]
        self._held = rest if rest.startswith("[") else ""
        self.stream.write("".join(f"{line}\n" for line in kept) + rest[len(self._held) :])
        return len(text)

    def close(self) -> None:
        """Write the text held back; the stream itself stays open."""
        if self._held and not self._LOG.match(self._held):
            self.stream.write(self._held)
        self._held = ""
        with suppress(OSError, ValueError):
            self.stream.flush()


def _flush_c() -> None:
    """Write out C's buffers, which would appear later on the real streams."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)


def _unmoved(stream: IO[str], descriptor: int) -> IO[str]:
    """Return a stream that still writes to its file when the descriptor is another one."""
    with suppress(OSError, ValueError):
        if stream.fileno() == descriptor:
            copy = os.dup(descriptor)
            return os.fdopen(copy, "w", encoding="utf-8", errors="replace", buffering=1)
    return stream
