"""Targets: this machine, and any Python with ExecuTorch that a command starts elsewhere."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, evolve

from etdev.errors import RunError
from etdev.pte.read import read
from etdev.registry.plugin import Plugin
from etdev.runtime.inputs import method_of, prepared
from etdev.runtime.kernels import kernel_modules
from etdev.runtime.runners import PYTHON, named, runner_of
from etdev.schema.structuring import CONVERTER
from etdev_tune.exchange import Failure, Request, Result, Runner
from etdev_tune.runners.commands import WORDS, Command, command_of
from etdev_tune.runners.connection import Connection
from etdev_tune.runners.runtimes import measured

# Time for an answer beyond the limit of its run, which the worker enforces.
GRACE_S = 30.0


class Target:
    """A worker at the other end of a command, which runs programs."""

    def __init__(self, command: Command) -> None:
        self._connection = Connection(command)
        self.name = command.name

    def fingerprint(self) -> Mapping[str, str]:
        """Return what times on the target depend on."""
        answer, _ = self._connection.ask({"order": "facts"}, "describing itself", GRACE_S)
        if "failure" in answer:
            what = f"it can't describe itself: {Failure(*answer['failure'])}"
            raise RunError(self.name, what, "see that ExecuTorch and its backends load there")
        facts: Mapping[str, str] = answer["facts"]
        return facts

    def run(self, request: Request) -> Result | Failure:
        """Push the files that the target lacks, and run the program in a process of its own."""
        order = self._order(request)
        during = f"running {request.program.name}"
        answer, payload = self._connection.ask(order, during, request.timeout_s + GRACE_S)
        if "failure" in answer:
            return Failure(*answer["failure"])
        outputs = torch.load(io.BytesIO(payload), weights_only=True)
        result = CONVERTER.structure(answer["result"], Result)
        return evolve(result, outputs=tuple(map(tuple, outputs)))

    def close(self) -> None:
        """Disconnect; the worker removes what was pushed."""
        self._connection.close()

    def _order(self, request: Request) -> dict[str, Any]:
        method = method_of(read(request.program), request.method)
        file = io.BytesIO()
        torch.save([prepared(method, inputs) for inputs in request.inputs], file)
        names = self._names(file.getvalue(), request.program, *request.data)
        return {
            **asdict(request, recurse=False),
            "order": "run",
            "inputs": names[0],
            "program": names[1],
            "data": names[2:],
            "imports": kernel_modules(method),
            "libraries": self._libraries(),
        }

    def _names(self, inputs: bytes, *files: Path) -> list[str]:
        """Return the names of files on the target, which are sent if it lacks them."""
        return self._connection.push([inputs, *files])

    def _libraries(self) -> Sequence[str]:
        """Return the libraries of kernels that a run loads."""
        return ()


class Local(Target):
    """This machine, with this Python and its libraries of kernels.

    Args:
        plugins: Name the runners that have their delegates.
        runner: Name of the runner of all programs, whatever the plugins say.
    """

    def __init__(self, plugins: Sequence[Plugin] = (), runner: str | None = None) -> None:
        self._plugins, self._runner = plugins, runner
        path = os.pathsep.join(folder for folder in sys.path if folder)
        environment = {**os.environ, "PYTHONPATH": path}
        name = f"local, {runner}" if runner else "local"
        super().__init__(Command(name, (WORDS,), sys.executable, environment))

    def fingerprint(self) -> Mapping[str, str]:
        """Return what times depend on; raise a RunError if the runner can't be used."""
        if not self._runner:
            return super().fingerprint()
        named(self._runner)
        return {**super().fingerprint(), "runner": self._runner}

    def run(self, request: Request) -> Result | Failure:
        """Run a program in a new process of the runner that has its delegates."""
        runner = runner_of(read(request.program), self._plugins, self._runner)
        return super().run(request) if runner is PYTHON else measured(runner, request)

    def _names(self, inputs: bytes, *files: Path) -> list[str]:
        return [*self._connection.push([inputs]), *(str(file.absolute()) for file in files)]

    def _libraries(self) -> Sequence[str]:
        return sorted(torch.ops.loaded_libraries)


def open_runner(text: str, plugins: Sequence[Plugin] = (), runner: str | None = None) -> Runner:
    """Make a target, which connects when it is first asked.

    Args:
        text: `local`; `ssh:host` or `ssh:user@host:/path/to/python`; `adb`, `adb:SERIAL` or
            `adb:SERIAL:/path/to/python`; or a command that starts a Python elsewhere, with
            `{command}` in its place: `docker exec -i box {command}`.
        plugins: As for `Local`.
        runner: As for `Local`, which alone has another than `python`.

    Raises:
        RunError: The text names no target, or one that lacks the runner.
    """
    if text == "local":
        return Local(plugins, runner)
    if runner not in (None, PYTHON.name):
        raise RunError(text, f"has no runner {runner!r}", "measure with it on this machine")
    return Target(command_of(text))
