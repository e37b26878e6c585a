"""A connection to a worker, over standard input and output of the process that leads to it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from etdev_tune.runners.commands import Command
from etdev_tune.target.worker import HELLO

# A connection over which nothing moves for that long is lost.
SILENCE_S = 60.0
# What is sent to a target, in the order of imports; the last one is run.
_MODULES = (
    "etdev.runtime.loading",
    *(f"etdev_tune.target.{name}" for name in ("usage", "facts", "work", "worker")),
)
_PACKAGES = ("etdev", "etdev.runtime", "etdev_tune", "etdev_tune.target")
_LOADER = """\
import sys, types
for name in {packages!r}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, source in {sources!r}:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, name, "exec"), module.__dict__)
module.main()
"""

Answer = tuple[Mapping[str, Any], Sequence[bytes]]


class Lost(Exception):
    """The other end is gone, or silent.

    Args:
        during: The work at that moment, in words.
        late: It is silent.
    """

    def __init__(self, during: str, late: bool = False) -> None:
        super().__init__(during, late)
        self.during = during
        self.late = late


class Connection:
    """Orders and answers over a process, with a time limit for each.

    Args:
        command: Starts a Python on the target.
    """

    def __init__(self, command: Command) -> None:
        self._program = _program()
        # Not a character that a shell, a template or JSON would want quoted twice.
        code = f"exec(open(0,'rb',closefd=False).read({len(self._program)}))"
        # A file, as nobody empties a pipe while an order is under way.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command.words(["-u", "-c", code]),
            cwd=tempfile.gettempdir(),
            env=command.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # An interrupt is for this process, which then closes the connection in order.
            start_new_session=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._to = self._process.stdin.fileno()
        self._from = self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self._rest = b""

    def greet(self, limit_s: float) -> Mapping[str, Any]:
        """Send the worker's program; return its answer when it is ready."""
        end = time.monotonic() + limit_s
        self._send(self._program, "connecting", end)
        # A login script may print something first.
        while self._line("connecting", end) != HELLO.encode():
            pass
        return self._answer("loading ExecuTorch", end)[0]

    def push(self, name: str, file: Path) -> Mapping[str, Any]:
        """Send a file under a name; return the answer."""
        order = {"order": "push", "name": name, "size": file.stat().st_size}
        during = f"sending {file.name}"
        self._send(_line_of(order), during)
        with file.open("rb") as source:
            while chunk := source.read(1 << 20):
                self._send(chunk, during)
        return self._answer(during, time.monotonic() + SILENCE_S)[0]

    def ask(self, order: Mapping[str, Any], during: str, limit_s: float) -> Answer:
        """Send an order; return the answer with its payload."""
        self._send(_line_of(order), during)
        return self._answer(during, time.monotonic() + limit_s)

    def close(self, patience_s: float = 10.0) -> str:
        """End the process, and with it the worker; return the text of its standard error."""
        process = self._process
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if stream:
                    stream.close()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with self._errors:
            self._errors.seek(0)
            return self._errors.read().decode("utf-8", "replace")

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process, once it has ended."""
        return self._process.poll()

    def _send(self, data: bytes, during: str, end: float | None = None) -> None:
        view = memoryview(data)
        while view:
            limit = SILENCE_S if end is None else end - time.monotonic()
            _, ready, _ = select.select([], [self._to], [], max(0.0, limit))
            if not ready:
                raise Lost(during, late=True)
            try:
                view = view[os.write(self._to, view) :]
            except BlockingIOError:
                continue
            except OSError:
                raise Lost(during) from None

    def _answer(self, during: str, end: float) -> Answer:
        answer = json.loads(self._line(during, end))
        return answer, [self._bytes(size, during) for size in answer["payload"]]

    def _line(self, during: str, end: float) -> bytes:
        while b"\n" not in self._rest:
            self._rest += self._more(during, end)
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _bytes(self, size: int, during: str) -> bytes:
        data = bytearray(self._rest)
        while len(data) < size:
            data += self._more(during, time.monotonic() + SILENCE_S)
        self._rest = bytes(data[size:])
        return bytes(data[:size])

    def _more(self, during: str, end: float) -> bytes:
        ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise Lost(during, late=True)
        chunk = os.read(self._from, 1 << 20)
        if not chunk:
            raise Lost(during)
        return chunk


def _program() -> bytes:
    """Return the worker as one Python program, for a target that has no etdev."""
    return _LOADER.format(packages=_PACKAGES, sources=[(m, _source(m)) for m in _MODULES]).encode()


def _source(module: str) -> str:
    package, _, path = module.partition(".")
    return files(package).joinpath(f"{path.replace('.', '/')}.py").read_text("utf-8")


def _line_of(order: Mapping[str, Any]) -> bytes:
    return json.dumps(order).encode() + b"\n"
