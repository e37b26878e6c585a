"""Streams of a command: stdout carries results alone, and C++ logs stay off the terminal.

Models and plugins may print. While a command works, Python's prints to stdout go to stderr, and the
output of C++ and of other processes is shown with --debug only; `results` alone writes to stdout.
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
from typing import IO, Any, TextIO, cast

import click

_KEY = "etdev.results"
# Characters that a terminal would obey instead of showing: the C0 controls, which have pictures,
# then C1, the marks that turn the direction of text, and halves of surrogate pairs.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_UNSEEN = (range(0x80, 0xA0), range(0x202A, 0x202F), range(0x2066, 0x206A), range(0xD800, 0xE000))
_SHOWN = {**_PICTURES, 0x7F: "\u2421"}
_SHOWN |= {code: "\ufffd" for codes in _UNSEEN for code in codes}


def plain(text: str) -> str:
    """Return a text with control characters made visible, as names in files may hold some."""
    return text.translate(_SHOWN)


def results() -> IO[str]:
    """Return the stream for results: stdout as it was when the command began."""
    context = click.get_current_context(silent=True)
    stream = context.find_root().meta.get(_KEY) if context else None
    return stream or sys.stdout


@contextmanager
def own_stdout(context: click.Context) -> Iterator[None]:
    """Reserve stdout for results while a command runs, and again when Python exits."""
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
        # Buffers may hold other prints, which have to go out while descriptor 1 is stderr.
        for stream in (printed, sys.__stdout__):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()  # type: ignore[union-attr]
        _flush_c()
        os.dup2(saved, 1)
        os.close(saved)
        if results is not printed:
            # Registered last, it runs before the exit functions of the model and of plugins.
            atexit.register(_give_up_stdout)


def _give_up_stdout() -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os.dup2(2, 1)


@contextmanager
def without_noise(quiet: bool) -> Iterator[None]:
    """Hide output that is not Python's, such as the logs of ExecuTorch's C++ runtime."""
    if not quiet or _closed():
        yield
        return
    printed, real = sys.stderr, _descriptor(sys.stderr) == 2
    saved = os.dup(1), os.dup(2)
    redirected = sys.stdout is printed
    with tempfile.TemporaryFile() as noise:
        try:
            printed.flush()
            # ExecuTorch's runtime for Python sends the logs of C++ through Python, too.
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


class WithoutLogs:
    """A text stream that drops the lines which ExecuTorch's C++ logs: `[method.cpp:12] ...`.

    They come in pieces, so that a line which begins like one is held back until it ends.

    Args:
        stream: The stream for everything else.
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
        self.stream.flush()


def _closed() -> bool:
    """Return True if descriptors 1 and 2 may be other files by now."""
    return sys.__stdout__ is None or sys.__stderr__ is None


def _nowhere() -> IO[str]:
    return open(os.devnull, "w", encoding="utf-8")


def _flush_c() -> None:
    """Write out C's buffers, which would appear later on the real streams."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)


def _descriptor(stream: IO[str]) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, io.UnsupportedOperation):
        return None


def _copy(descriptor: int) -> IO[str]:
    """Return a new text stream to a copy of a descriptor."""
    return os.fdopen(os.dup(descriptor), "w", encoding="utf-8", errors="replace", buffering=1)
