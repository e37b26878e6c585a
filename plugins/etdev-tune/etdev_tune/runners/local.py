"""This machine: programs run in forks of a worker of this Python, or in another runner."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import torch
from attrs import asdict

from etdev.app import Plugin, ProgramFile
from etdev.errors import RunError
from etdev.runtime.child import Child
from etdev.runtime.runners import PYTHON, named, runner_of
from etdev_tune.exchange import Failure, Request, Result
from etdev_tune.process.messages import receive, send
from etdev_tune.runners.runtimes import measured

START_S = 180.0
# Time for an answer beyond the limit of its run, which the worker enforces.
GRACE_S = 30.0
_WORKER = (sys.executable, "-u", "-m", "etdev_tune.process.worker")


class Local:
    """This machine, with this Python and its libraries of kernels.

    Args:
        plugins: Name the runners that have their delegates.
        runner: Name of the runner of all programs, whatever the plugins say.
    """

    def __init__(self, plugins: Sequence[Plugin] = (), runner: str | None = None) -> None:
        self._plugins, self._runner = plugins, runner
        self.name = f"local, {runner}" if runner else "local"
        self._child = Child(self.name, {}, _WORKER, tidies=True, forks=True)

    def fingerprint(self) -> Mapping[str, str]:
        """Return what times depend on; raise a RunError if the runner can't be used."""
        if self._runner:
            named(self._runner)
        found: Mapping[str, str] = self._ask({"order": "facts"}, "describing itself", START_S)
        if "kind" in found:
            what = f"it can't describe itself: {Failure(**found)}"
            raise RunError(self.name, what, "see that ExecuTorch and its backends load")
        return {**found, "runner": self._runner} if self._runner else found

    def run(self, request: Request) -> Result | Failure:
        """Run a program in a new process of the runner that has its delegates."""
        file = ProgramFile(request.program)
        runner = runner_of(file.artifact, self._plugins, self._runner)
        if runner is not PYTHON:
            return measured(runner, request)
        order = {
            **asdict(request, recurse=False),
            "order": "run",
            "inputs": [file.inputs(request.method, values) for values in request.inputs],
            "program": str(request.program.absolute()),
            "data": [str(path.absolute()) for path in request.data],
            "imports": file.runnable().modules,
            "libraries": sorted(torch.ops.loaded_libraries),
        }
        start_s = 0.0 if self._child.is_running else START_S
        during = f"running {request.program.name}"
        found = self._ask(order, during, request.timeout_s + GRACE_S + start_s)
        return Failure(**found) if "kind" in found else Result(**found)

    def close(self) -> None:
        """End the worker, which removes its files."""
        self._child.close()

    def _ask(self, order: Mapping[str, Any], during: str, limit_s: float) -> Any:
        """Return the answer to an order, or raise a RunError for a lost worker."""
        message = io.BytesIO()
        send(message, order)
        outcome = self._child.ask(message.getvalue(), _answers, limit_s)
        if outcome.failure:
            cure = "run it again: what was measured before is kept"
            what = f"the worker was lost while {during}: {outcome.failure}"
            raise RunError(self.name, what, cure)
        return outcome.values[0]


def _answers(stream: IO[bytes]) -> Iterator[Any]:
    yield receive(stream)
