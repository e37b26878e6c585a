"""A connection to a worker, over standard input and output of the process that leads to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

from blake3 import blake3

from etdev_tune.runners.commands import CONNECTING, Command
from etdev_tune.target.worker import HELLO

# ExecuTorch takes ten times longer to load on a small board than on a desktop.
START_S = 180.0
# A connection over which nothing moves for that long is lost.
_SILENCE_S = 60.0
# Time that an idle worker takes to end.
_PATIENCE_S = 10.0
_CHUNK = 1 << 20
# The worker's modules, in the order of imports.
_MODULES = (
    "etdev.runtime.loading",
    *(f"etdev_tune.target.{name}" for name in ("facts", "work", "worker")),
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


class Connection:
    """A connection that is made for the first order, and again after it was lost."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        # Names of the files that the target has.
        self._pushed: set[str] = set()

    def ask(
        self, order: Mapping[str, Any], during: str, limit_s: float
    ) -> tuple[Mapping[str, Any], bytes]:
        """Send an order, which is `during` work such as `running x.pte`; return the answer."""
        self._connect()
        self._send(json.dumps(order).encode() + b"\n", during)
        answer, payload = self._answer(during, limit_s)
        self.command.refuse(answer)
        return answer, payload

    def push(self, given: Sequence[bytes | Path]) -> list[str]:
        """Send the files that the target lacks; return the names of all of them there."""
        self._connect()
        names: list[str] = []
        before = set(self._pushed)
        for item in given:
            data = item if isinstance(item, bytes) else item.read_bytes()
            name = blake3(data).hexdigest()[:32]
            names.append(name)
            if name in self._pushed:
                continue
            during = "sending inputs" if isinstance(item, bytes) else f"sending {item.name}"
            head = json.dumps({"order": "push", "name": name, "size": len(data)})
            self._send(head.encode() + b"\n" + data, during)
            answer, _ = self._answer(during, _SILENCE_S)
            if answer.get("kind") == "disk" and before.difference(names):
                # The worker removes the files of earlier programs when it is disconnected.
                self.close()
                return self.push(given)
            self.command.refuse(answer)
            self._pushed.add(name)
        return names

    def close(self) -> str:
        """Disconnect, on which the worker removes its files; return the text of standard error."""
        process, self._process = self._process, None
        self._pushed.clear()
        if process is None:
            return ""
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                assert stream
                stream.close()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait()
        assert self._errors
        with self._errors as errors:
            errors.seek(0)
            return errors.read().decode("utf-8", "replace")

    def _connect(self) -> None:
        if self._process:
            return
        program = _program()
        # Not a character that a shell, a template or JSON would want quoted twice.
        code = f"exec(open(0,'rb',closefd=False).read({len(program)}))"
        # A file, as nobody empties a pipe while an order is under way.
        errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                self.command.words(["-u", "-c", code]),
                cwd=tempfile.gettempdir(),
                env=self.command.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # An interrupt is for this process, which then closes the connection in order.
                start_new_session=True,
            )
        except OSError as error:
            errors.close()
            raise self.command.lost(CONNECTING, False, str(error)) from error
        self._errors = errors
        self._send(program, CONNECTING)
        with self._watched(CONNECTING, START_S) as process:
            # A login script may print something first.
            while _line(process) != HELLO.encode() + b"\n":
                pass
        answer, _ = self._answer(CONNECTING, START_S)
        self.command.refuse(answer)

    def _send(self, data: bytes, during: str) -> None:
        for start in range(0, len(data), _CHUNK):
            with self._watched(during, _SILENCE_S) as process:
                assert process.stdin
                process.stdin.write(data[start : start + _CHUNK])
                process.stdin.flush()

    def _answer(self, during: str, limit_s: float) -> tuple[Mapping[str, Any], bytes]:
        with self._watched(during, limit_s) as process:
            answer = json.loads(_line(process))
        payload = b""
        while rest := answer["payload"] - len(payload):
            with self._watched(during, _SILENCE_S) as process:
                assert process.stdout
                chunk = process.stdout.read(min(rest, _CHUNK))
                if not chunk:
                    raise EOFError
                payload += chunk
        return answer, payload

    @contextlib.contextmanager
    def _watched(self, during: str, limit_s: float) -> Iterator[subprocess.Popen[bytes]]:
        """End the connection if a step fails, is interrupted, or takes longer than a limit."""
        process = self._process
        assert process
        late = threading.Event()

        def end() -> None:
            late.set()
            _kill(process)

        timer = threading.Timer(limit_s, end)
        timer.start()
        try:
            yield process
        except (OSError, EOFError) as error:
            raise self.command.lost(during, late.is_set(), self.close()) from error
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def _line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line


def _program() -> bytes:
    """Return the worker as one Python program, for a target that has no etdev."""
    return _LOADER.format(packages=_PACKAGES, sources=[(m, _source(m)) for m in _MODULES]).encode()


def _source(module: str) -> str:
    package, _, path = module.partition(".")
    return files(package).joinpath(f"{path.replace('.', '/')}.py").read_text("utf-8")
