"""A connection: a process whose standard input and output lead to a worker."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etdev_tune.worker import HELLO

# A connection over which nothing moves for so long is lost.
SILENCE_S = 60.0


class Lost(Exception):
    """The other end is gone, or silent; `during` says when."""

    def __init__(self, during: str, late: bool = False) -> None:
        super().__init__(during, late)
        self.during = during
        self.late = late


class Connection:
    """Orders and answers over a process, with a time limit for each.

    Args:
        command: The process.
        environment: Its environment; None for ours.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None) -> None:
        # A file, as nobody empties a pipe while an order is under way.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            cwd=tempfile.gettempdir(),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # An interrupt is for us, who then close the connection in order.
            start_new_session=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._to = self._process.stdin.fileno()
        self._from = self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self._rest = b""

    def greet(self, program: bytes, limit_s: float) -> Mapping[str, Any]:
        """Send the worker over; what it says when it is ready."""
        end = time.monotonic() + limit_s
        self._send(program, "connecting", end)
        # Whatever a login script prints comes first.
        while self._line("connecting", end) != HELLO.encode():
            pass
        return self._answer("loading ExecuTorch", end)[0]

    def push(self, name: str, file: Path) -> Mapping[str, Any]:
        """Send a file; what the worker says to it."""
        order = {"order": "push", "name": name, "size": file.stat().st_size}
        during = f"sending {file.name}"
        self._send(json.dumps(order).encode() + b"\n", during)
        with file.open("rb") as source:
            while chunk := source.read(1 << 20):
                self._send(chunk, during)
        return self._answer(during, time.monotonic() + SILENCE_S)[0]

    def ask(
        self, order: Mapping[str, Any], during: str, limit_s: float
    ) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        """Send an order; the answer and what follows it."""
        self._send(json.dumps(order).encode() + b"\n", during)
        return self._answer(during, time.monotonic() + limit_s)

    def close(self, patience_s: float = 10.0) -> str:
        """End the process, which ends the worker; what it wrote to its standard error."""
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
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace")
        self._errors.close()
        return text

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, once it has ended."""
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

    def _line(self, during: str, end: float) -> bytes:
        while b"\n" not in self._rest:
            self._rest += self._more(during, end)
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _answer(self, during: str, end: float) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        answer = json.loads(self._line(during, end))
        return answer, [self._bytes(size, during) for size in answer["payload"]]

    def _bytes(self, size: int, during: str) -> bytes:
        parts, rest = [self._rest[:size]], size - len(self._rest[:size])
        self._rest = self._rest[size:]
        while rest:
            chunk = self._more(during, time.monotonic() + SILENCE_S)
            parts.append(chunk[:rest])
            self._rest = chunk[rest:]
            rest -= len(parts[-1])
        return b"".join(parts)

    def _more(self, during: str, end: float) -> bytes:
        ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise Lost(during, late=True)
        chunk = os.read(self._from, 1 << 20)
        if not chunk:
            raise Lost(during)
        return chunk
