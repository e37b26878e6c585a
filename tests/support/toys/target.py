"""A fake target whose times and faults a test decides; outputs are computed by the real runtime."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from etdev_tune.exchange import Failure, Request, Result

from etdev.pte.read import read
from etdev.runtime.run import execute


class Scripted:
    """Runs nothing under the clock: says that a call takes what a function of its delegates says.

    Args:
        milliseconds: Given the backends of a program, one for each delegate: the time of a call, or
            a Failure.
        noise: How much the times of processes scatter.
    """

    name = "scripted"

    def __init__(self, milliseconds: Callable[[list[str]], Any], noise: float = 0.0) -> None:
        self.milliseconds = milliseconds
        self.requests: list[Request] = []
        self.digests: list[int] = []
        self.noise = noise
        self._generator = np.random.default_rng(0)
        self._interrupt_at = itertools.repeat(False)

    def fingerprint(self) -> dict[str, str]:
        return {"cpu": "scripted", "cores": "2"}

    def interrupt(self, after: int) -> None:
        """Press Ctrl-C during a run."""
        quiet = itertools.repeat(False, after)
        self._interrupt_at = itertools.chain(quiet, [True], itertools.repeat(False))

    def run(self, request: Request) -> Result | Failure:
        if next(self._interrupt_at):
            raise KeyboardInterrupt
        program = request.program.read_bytes()
        self.requests.append(request)
        self.digests.append(hash(program))
        (method,) = read(request.program).methods
        answer = self.milliseconds([delegate.backend_id for delegate in method.delegates])
        if isinstance(answer, Failure):
            return answer
        outputs = [tuple(execute(program, inputs)) for inputs in request.inputs]
        scale = float(np.exp(self._generator.normal(0, self.noise)))
        time = int(answer * scale * 1e6)
        return Result(
            times_ns=tuple((time,) * request.repetitions for _ in request.inputs),
            outputs=tuple(outputs) if request.outputs else (),
            memory_bytes=1000,
        )

    def close(self) -> None:
        """Nothing to close."""
