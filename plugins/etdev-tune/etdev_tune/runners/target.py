"""A target: a Python with ExecuTorch that a command reaches."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from etdev.errors import RunError
from etdev.files import scratch
from etdev.pte.read import read
from etdev.runtime.inputs import check_inputs, laid_out, method_of
from etdev.runtime.isolation import save_inputs
from etdev.runtime.kernels import kernel_modules
from etdev_tune.exchange import Failure, Request, Result
from etdev_tune.runners.command import Command
from etdev_tune.runners.session import Session

# What an answer may take beyond the limit of its run, which the worker sees to.
GRACE_S = 30.0


class Target:
    """Runs programs with a worker at the other end of a command.

    It is connected when it is first asked, and anew when it is asked after a connection was lost.

    Args:
        command: Starts a Python on the target.
    """

    def __init__(self, command: Command) -> None:
        self._session = Session(command)

    @property
    def name(self) -> str:
        """How it was asked for, such as `ssh:host`."""
        return self._session.command.name

    def fingerprint(self) -> Mapping[str, str]:
        """What its times depend on.

        Raises:
            RunError: The target can't be reached, or has no Python with ExecuTorch.
        """
        answer, _ = self._session.ask({"order": "facts"}, "telling what it is", GRACE_S)
        if "failure" in answer:
            what = f"it can't tell what it is: {Failure(*answer['failure'])}"
            raise RunError(self.name, what, "see that ExecuTorch and its backends load there")
        facts: Mapping[str, str] = answer["facts"]
        return facts

    def run(self, request: Request) -> Result | Failure:
        """Push the files that the target lacks, and run them there in a process of their own.

        Raises:
            ArtifactError: The program is not a .pte.
            RunError: The inputs don't fit the method, or the target is lost or full.
        """
        order = self._order(request)
        during = f"running {request.program.name}"
        answer, payload = self._session.ask(order, during, request.timeout_s + GRACE_S)
        if "failure" in answer:
            return Failure(*answer["failure"])
        outputs, dump = payload
        times = tuple(tuple(times) for times in answer["result"].pop("times_ns"))
        sentinel = tuple(answer["result"].pop("sentinel_ns"))
        values = torch.load(io.BytesIO(outputs), weights_only=True)
        return Result(
            times,
            tuple(tuple(call) for call in values),
            sentinel_ns=sentinel,
            etdump=dump or None,
            **answer["result"],
        )

    def close(self) -> None:
        """Disconnect; the worker removes what was pushed."""
        self._session.close()

    def _order(self, request: Request) -> dict[str, Any]:
        method = method_of(read(request.program), request.method)
        sets = []
        for inputs in request.inputs:
            check_inputs(method, inputs)
            sets.append([_own(value) for value in laid_out(method, inputs)])
        with scratch() as folder:
            file = Path(folder) / "inputs.pt"
            save_inputs(sets, file)
            names = {"inputs": self._session.push(file)}
        return {
            "order": "run",
            "program": self._placed(request.program),
            "data": [self._placed(file) for file in request.data],
            **names,
            "imports": kernel_modules(method),
            "libraries": self._libraries(),
            "method": request.method,
            "outputs": request.outputs,
            "timed": request.timed,
            "warmup": request.warmup,
            "warmup_s": request.warmup_s,
            "repetitions": request.repetitions,
            "seconds": request.seconds,
            "threads": request.threads,
            "profile": request.profile,
            "timeout_s": request.timeout_s,
        }

    def _placed(self, file: Path) -> str:
        """The name of a file on the target, which has it then."""
        return self._session.push(file)

    def _libraries(self) -> Sequence[str]:
        """Libraries of kernels that a run loads."""
        return ()


def _own(value: Any) -> Any:
    """A tensor without the rest of a larger one that it is a view of, which would be sent too."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
