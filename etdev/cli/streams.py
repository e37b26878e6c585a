"""Streams: stdout is for results alone; what upstream's C++ logs stays out of sight.

Models and plugins are other people's code and print. While a command works, what Python prints to
stdout lands on stderr, and what C++ or another process writes to either is shown with --debug; only
`results` reaches stdout.
"""

from __future__ import annotations

import atexit
import ctypes
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TextIO, cast

import click

_KEY = "etdev.results"


def results() -> IO[str]:
    """The stream for results: stdout, as it was when the command began."""
    context = click.get_current_context(silent=True)
    stream = context.find_root().meta.get(_KEY) if context else None
    return stream or sys.stdout


@contextmanager
def own_stdout(context: click.Context) -> Iterator[None]:
    """Keep stdout for results while a command runs, and again when Python ends."""
    # None if the caller closed it.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    if _closed():
        yield
        return
    printed = sys.stdout
    results = _copy(1) if _descriptor(printed) == 1 else printed
    context.find_root().meta[_KEY] = results
    saved = os.dup(1)
    try:
        printed.flush()
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        yield
    finally:
        sys.stdout = printed
        with suppress(BrokenPipeError):
            results.flush()
        _flush_all(printed)
        os.dup2(saved, 1)
        os.close(saved)
        if results is not printed:
            # The last to be registered runs first, before those of the model and of plugins.
            atexit.register(_give_up_stdout)


def _flush_all(printed: IO[str]) -> None:
    """Write out what stdout's buffers hold of others while it leads to stderr."""
    for stream in (printed, sys.__stdout__):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]
    _flush_c()


def _give_up_stdout() -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os.dup2(2, 1)


@contextmanager
def without_noise(quiet: bool) -> Iterator[None]:
    """Keep from the terminal what Python does not write: ExecuTorch's runtime logs from C++."""
    if not quiet or _closed():
        yield
        return
    printed, real = sys.stderr, _descriptor(sys.stderr) == 2
    saved = os.dup(1), os.dup(2)
    redirected = sys.stdout is printed
    with tempfile.TemporaryFile() as noise:
        try:
            printed.flush()
            # ExecuTorch's runtime for Python sends what C++ logs through Python, too.
            sys.stderr = cast(TextIO, WithoutLogs(_copy(2) if real else printed))
            if redirected:
                sys.stdout = sys.stderr
            for descriptor in (1, 2):
                os.dup2(noise.fileno(), descriptor)
            yield
        finally:
            sys.stderr.close()
            _flush_c()
            for descriptor, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, descriptor)
                os.close(copy)
            sys.stderr = printed
            if redirected:
                sys.stdout = printed


class WithoutLogs(io.TextIOBase):
    """A stream without the lines that ExecuTorch's C++ logs, such as `[method.cpp:12] ...`.

    They come in pieces, so that a line which begins like one is held back until it ends.
    """

    _LOG = re.compile(r"\[[\w.+-]+\.(?:cpp|cc|c|hpp|h):\d+\] ")

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self._held = ""

    def write(self, text: str) -> int:
        *lines, rest = (self._held + text).split("\n")
        kept = [line for line in lines if not self._LOG.match(line)]
        self._held = rest if rest.startswith("[") else ""
        self.stream.write("".join(f"{line}\n" for line in kept) + rest[len(self._held) :])
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    def close(self) -> None:
        """Write what is held back; the stream itself stays open."""
        if self._held and not self._LOG.match(self._held):
            self.stream.write(self._held)
        self._held = ""
        self.stream.flush()


def _closed() -> bool:
    """Whether descriptors 1 and 2 may be some other file's by now."""
    return sys.__stdout__ is None or sys.__stderr__ is None


def _nowhere() -> IO[str]:
    return open(os.devnull, "w", encoding="utf-8")


def _flush_c() -> None:
    """Write out what C has in its buffers; it would appear later, on the real streams."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)


def _descriptor(stream: IO[str]) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, io.UnsupportedOperation):
        return None


def _copy(descriptor: int) -> IO[str]:
    """A text stream of its own to where a descriptor leads."""
    return os.fdopen(os.dup(descriptor), "w", encoding="utf-8", errors="replace", buffering=1)
