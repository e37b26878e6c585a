"""Functions that are called in processes of their own, since they may crash or hang."""

from __future__ import annotations

import importlib
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import define, field

TESTS = Path(__file__).parents[1]


class DiedError(Exception):
    """A process crashed, or took too long to answer."""


class FailedError(Exception):
    """A function raised an error in its process; the text begins with its type."""


@define(eq=False)
class Process:
    """A process that calls a function; it begins with the first call.

    Args:
        function: The function as `module:name`; its module is imported in the process only.
        timeout_s: The process is ended when a call takes longer.
        environ: Variables that its environment has beside those of this process.
    """

    function: str
    timeout_s: float = 900.0
    environ: Mapping[str, str] = field(factory=dict)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def ask(self, *arguments: Any) -> Any:
        """Call the function there; return its result.

        Raises:
            DiedError: The process is no more; another one does the next call.
            FailedError: The function raised an error.
        """
        process = self._process = self._process or self._begun()
        try:
            pickle.dump(arguments, process.stdin)
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], self.timeout_s)
            if not ready:
                self.close()
                raise DiedError(f"hung for {self.timeout_s:g} s")
            failed, result = pickle.load(process.stdout)
        except (EOFError, OSError):
            raise DiedError(f"crashed with code {self.close()}") from None
        if failed:
            raise FailedError(result)
        return result

    def close(self) -> int:
        """End the process; return the code that it ended with, if by itself."""
        process, self._process = self._process, None
        if process is None:
            return 0
        # It may be gone, with a call unread.
        with suppress(OSError):
            process.stdin.close()
        try:
            return process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _begun(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "support.processes", self.function],
            env={**os.environ, "PYTHONPATH": path, **self.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )


def apart(function: str, *arguments: Any, **options: Any) -> Any:
    """Call a function once, in a process of its own; the options are those of `Process`."""
    process = Process(function, **options)
    try:
        return process.ask(*arguments)
    finally:
        process.close()


def answer(function: str) -> None:
    """Call a function whenever it is asked for; what is printed goes to standard error."""
    calls, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    while True:
        try:
            arguments = pickle.load(calls)
        except EOFError:
            return
        try:
            result = False, call(*arguments)
        except Exception as error:
            result = True, f"{type(error).__name__}: {error}"
        pickle.dump(result, results)
        results.flush()


if __name__ == "__main__":
    answer(sys.argv[1])
