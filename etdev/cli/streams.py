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
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import IO

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
    out, err = sys.stdout, sys.stderr
    out.flush()
    err.flush()
    results = context.meta[_KEY] = _unmoved(out, 1)
    shown = _unmoved(err, 2)
    noise = os.open(os.devnull, os.O_WRONLY) if quiet else os.dup(2)
    with _moved(1, noise), _moved(2, noise), redirect_stdout(shown), redirect_stderr(shown):
        os.close(noise)
        try:
            yield
        finally:
            # Buffers may hold other prints, which would appear on the real stdout later.
            with suppress(OSError, AttributeError, TypeError):
                ctypes.CDLL(None).fflush(None)
            for stream in (results, shown, out):
                with suppress(OSError, ValueError):
                    stream.flush()
    if results is not out:
        # Registered last, it runs before the exit functions of the model and of plugins.
        atexit.register(_give_up_stdout)


def _give_up_stdout() -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os.dup2(2, 1)


@contextmanager
def _moved(descriptor: int, target: int) -> Iterator[None]:
    """Redirect a descriptor to the file of another one meanwhile."""
    saved = os.dup(descriptor)
    os.dup2(target, descriptor)
    try:
        yield
    finally:
        os.dup2(saved, descriptor)
        os.close(saved)


def _unmoved(stream: IO[str], descriptor: int) -> IO[str]:
    """Return a stream that still writes to its file when the descriptor is another one."""
    with suppress(OSError, ValueError):
        if stream.fileno() == descriptor:
            copy = os.dup(descriptor)
            return os.fdopen(copy, "w", encoding="utf-8", errors="replace", buffering=1)
    return stream
