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

from etdev.errors import RunError, first_line
from etdev.files import scratch
from etdev.pte.read import read
from etdev.runtime.inputs import check_inputs, laid_out, method_of
from etdev.runtime.kernels import kernel_modules
from etdev.schema.structuring import CONVERTER
from etdev_tune.exchange import Failure, Request, Result, Runner
from etdev_tune.runners.commands import WORDS, Command, of_host, of_serial, of_template
from etdev_tune.runners.connection import Connection

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
        """Push the files that the target lacks, and run the program in a process of its own.

        Raises:
            ArtifactError: The program is not a .pte.
            RunError: The inputs don't fit the method, or the target is lost or full.
        """
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
        sets = []
        for inputs in request.inputs:
            check_inputs(method, inputs)
            # Copies, so that a view of a larger tensor is sent without the rest of that tensor.
            laid = laid_out(method, inputs)
            sets.append([v.detach().clone() if isinstance(v, torch.Tensor) else v for v in laid])
        with scratch() as folder:
            file = Path(folder) / "inputs.pt"
            _save(sets, file)
            inputs_there, program, *data = self._names(file, request.program, *request.data)
        return {
            **asdict(request, recurse=False),
            "order": "run",
            "inputs": inputs_there,
            "program": program,
            "data": data,
            "imports": kernel_modules(method),
            "libraries": self._libraries(),
        }

    def _names(self, inputs: Path, *files: Path) -> list[str]:
        """Return the names of files on the target, which are sent if it lacks them."""
        return self._connection.push([inputs, *files])

    def _libraries(self) -> Sequence[str]:
        """Return the libraries of kernels that a run loads."""
        return ()


class Local(Target):
    """This machine, with this Python and its libraries of kernels."""

    def __init__(self) -> None:
        path = os.pathsep.join(folder for folder in sys.path if folder)
        environment = {**os.environ, "PYTHONPATH": path}
        super().__init__(Command("local", (WORDS,), sys.executable, "local", environment))

    def _names(self, inputs: Path, *files: Path) -> list[str]:
        return [*self._connection.push([inputs]), *(str(file.absolute()) for file in files)]

    def _libraries(self) -> Sequence[str]:
        return sorted(torch.ops.loaded_libraries)


def open_runner(text: str) -> Runner:
    """Make a runner, which connects when it is first asked.

    Args:
        text: `local`; `ssh:host` or `ssh:user@host:/path/to/python`; `adb`, `adb:SERIAL` or
            `adb:SERIAL:/path/to/python`; or a command that starts a Python elsewhere, with
            `{command}` in its place: `docker exec -i box {command}`.

    Raises:
        RunError: The text names no runner.
    """
    if text == "local":
        return Local()
    kind, _, rest = text.partition(":")
    read_command = {"ssh": of_host, "adb": of_serial}.get(kind)
    return Target(read_command(rest) if read_command else of_template(text))


def _save(inputs: Any, file: Path) -> None:
    """Write inputs to a file in a temporary folder, or raise a RunError."""
    try:
        torch.save(inputs, file)
    # torch's own writer turns a full disk into a RuntimeError.
    except (OSError, RuntimeError) as error:
        what = f"inputs can't be written there ({first_line(error)})"
        raise RunError(str(file.parents[1]), what, "make room, or set TMPDIR") from error
