"""A child process that works for this process, and may crash or hang without harm to it.

`python -m etdev.runtime.child` is such a process. It reads pickled calls from standard input and
writes pickled answers to standard output until its input ends. With names of modules as arguments
it imports these first, and not executorch.runtime, which another runtime may have to replace.
"""

from __future__ import annotations

import atexit
import io
import multiprocessing
import os
import pickle
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from operator import methodcaller
from typing import IO, Any

from attrs import define, field, frozen

from etdev.errors import RunError
from etdev.files import in_scratch
from etdev.runtime.ending import ending, first_error
from etdev.runtime.loading import load_runtime

_UNSIGNED = ("torch.uint16", "torch.uint32", "torch.uint64")
# A function that takes longer counts as one that hangs.
LIMIT_S = 1800.0
# A process whose pipes are closed is killed after this time.
_ENDING_S = 10.0
COMMAND = (sys.executable, "-m", "etdev.runtime.child")


@frozen(eq=False)
class ChildResult:
    """The result of a call in a child process.

    Args:
        values: The values that the function yielded before it ended.
        failure: Why it did not finish, such as a crash; None if it did.
    """

    values: Sequence[Any]
    failure: str | None = None


class Raised(Exception):
    """The process answered that the call raised an error; the text names it."""


@define(eq=False)
class Child:
    """A process with ExecuTorch's runtime, which works on one call at a time.

    It starts when it is first needed and is kept, since loading ExecuTorch takes seconds. After it
    died it is started again.

    Args:
        name: Subject of the text about a call that raised an error.
        env: Variables to add to its environment.
        command: Its words; a process other than this file's is asked with `ask`, and not with
            `run`.
        program: Bytes that it reads before its first call.
        tidies: It has something to remove, and ends by itself once its input has ended.
        forks: It works in forks of itself. A RunError says so where the system has none.
    """

    name: str = "the runtime"
    env: Mapping[str, str] = field(factory=dict)
    command: Sequence[str] = COMMAND
    program: bytes = b""
    tidies: bool = False
    forks: bool = False
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _log: IO[bytes] = field(factory=io.BytesIO, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def start(self) -> None:
        """Start the process, so that it loads ExecuTorch while this one does something else."""
        with self._lock:
            self._started()

    def run(
        self, function: Callable[..., Iterator[Any]], *args: Any, limit_s: float = LIMIT_S
    ) -> ChildResult:
        """Run a generator function in the process and collect the values that it yields."""
        return self.ask(_pickled((function, args)), _answers, limit_s)

    def ask(
        self, call: bytes, answers: Callable[[IO[bytes]], Iterator[Any]], limit_s: float = LIMIT_S
    ) -> ChildResult:
        """Send a call to the process and collect the values of its answers.

        Args:
            call: The bytes of the call.
            answers: Yields each value from the process' standard output until the call ends; raises
                `Raised` for an error, and EOFError where the output ends early.
            limit_s: Time after which the process is killed.
        """
        values: list[Any] = []
        code = 0
        with self._lock:
            # All that a new process logs is about this call.
            logged = self._log.seek(0, os.SEEK_END) if self.is_running else 0
            process = self._started()
            late = threading.Event()
            timer = threading.Timer(limit_s, _kill, (process, late))
            timer.start()
            try:
                assert process.stdin
                assert process.stdout
                process.stdin.write(call)
                process.stdin.flush()
                for value in answers(process.stdout):
                    values.append(value)
                return ChildResult(values)
            except Raised as error:
                failure = f"{self.name} failed with {error}"
            except (EOFError, OSError, pickle.UnpicklingError):
                code = self._ended()
                end = f"took longer than {limit_s:g} s" if late.is_set() else ending(code)
                failure = f"the process {end}"
            except BaseException:
                # Such as Ctrl-C: the function may never finish.
                self.close()
                raise
            finally:
                timer.cancel()
                if late.is_set() and self._process:
                    # Killed just after the last value.
                    self._ended()
            why = self._reason(logged, code)
            return ChildResult(values, f"{failure} ({why})" if why else failure)

    def close(self) -> None:
        """End the process."""
        if process := self._process:
            if not self.tidies:
                process.kill()
            self._ended()

    def forget(self) -> None:
        """Leave the process to the parent of this one, which is a fork."""
        self._process, self._lock = None, threading.Lock()

    @property
    def is_running(self) -> bool:
        """Return True if the process has started and not ended."""
        return self._process is not None and self._process.poll() is None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process and not self.is_running:
            self._ended()
        if self._process is None:
            if self.forks and "fork" not in multiprocessing.get_all_start_methods():
                what = f"works in forks of a process, which {platform.system()} doesn't have"
                raise RunError(self.name, what, "run it on Linux or macOS, or on Windows in WSL")
            with in_scratch():
                self._log = tempfile.TemporaryFile()  # noqa: SIM115 (kept open)
            path = os.pathsep.join(folder for folder in sys.path if folder)
            try:
                self._process = subprocess.Popen(
                    self.command,
                    cwd=tempfile.gettempdir(),
                    # Its working directory is everybody's, and no place to import from.
                    env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", **self.env},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                )
            except OSError as error:
                what = f"{self.command[0]} doesn't start: {error.strerror}"
                cure = "see that it is a program of this machine"
                raise RunError(self.name, what, cure) from error
            with suppress(OSError):
                assert self._process.stdin
                self._process.stdin.write(self.program)
        return self._process

    def _ended(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        process, self._process = self._process, None
        assert process
        for pipe in (process.stdin, process.stdout):
            # Closing the pipe to a dead process fails when it still holds data.
            with suppress(OSError):
                assert pipe
                pipe.close()
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_ENDING_S)
        process.kill()
        return process.wait()

    def _reason(self, start: int, code: int) -> str:
        """Return the first error that ExecuTorch logged after a position in the log.

        Without one it is the last line of a process that ended by itself.
        """
        self._log.seek(start)
        text = self._log.read()
        if code > 0 and not text.strip():
            # It ended by itself, and may have said why while it started.
            self._log.seek(0)
            text = self._log.read()
        lines = text.decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()] if code > 0 else []
        return first_error(lines) or (said[-1] if said else "")


class _Pickler(pickle.Pickler):
    """A pickler of all tensors; torch's own fails on most unsigned integers when it reads them."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if not torch or type(value) is not torch.Tensor or str(value.dtype) not in _UNSIGNED:
            return NotImplemented
        signed = getattr(torch, str(value.dtype).removeprefix("torch.u"))
        return methodcaller("view", value.dtype), (value.view(signed),)


def _pickled(value: object) -> bytes:
    written = io.BytesIO()
    _Pickler(written).dump(value)
    return written.getvalue()


def _answers(stream: IO[bytes]) -> Iterator[Any]:
    """Yield what the function yields."""
    while True:
        kind, value = pickle.load(stream)
        if kind == "error":
            raise Raised(value)
        if kind == "end":
            return
        yield value


def _kill(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    process.kill()


def main() -> None:
    """Answer calls until there are no more."""
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Libraries that print must not write into the answers, nor may they read the calls.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for name in sys.argv[1:]:
        import_module(name)
    if not sys.argv[1:]:
        load_runtime()
    while True:
        try:
            function, args = pickle.load(calls)
        except EOFError:
            return
        for answer in _answered(function, args):
            answers.write(answer)
            answers.flush()


def _answered(function: Callable[..., Iterator[Any]], args: tuple[Any, ...]) -> Iterator[bytes]:
    try:
        for value in function(*args):
            yield _pickled(("value", value))
    except Exception as error:
        yield _pickled(("error", " ".join(f"{type(error).__name__}: {error}".split())))
    else:
        yield _pickled(("end", None))


# Shared by all runs of this process.
CHILD = Child()
atexit.register(CHILD.close)
if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=CHILD.forget)

if __name__ == "__main__":
    main()
