"""Measurements by the runners of etdev, such as `cpp`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

from etdev.app import ProgramFile
from etdev.errors import RunError
from etdev.runtime.runners import CallResult, Runner
from etdev_tune.exchange import Failure, Request, Result
from etdev_tune.process.facts import THREADS

_LONG_MS = 1000.0


def measured(runner: Runner, request: Request) -> Result | Failure:
    """Run a program in a new process of a runner."""
    file = ProgramFile(request.program)
    sets = [file.inputs(request.method, inputs) for inputs in request.inputs]
    program = file.runnable(next(iter(request.data), None))

    def call(chosen: Sequence[Sequence[Any]], repeat: int) -> Sequence[CallResult]:
        calls = [(request.method, inputs) for inputs in chosen]
        outcome = runner.call(program, calls, repeat, request.timeout_s)
        if outcome.failure:
            raise RunError(runner.name, outcome.failure, "see etdev check")
        return outcome.values

    # A process that runs already may have other threads, and has run other programs.
    runner.close()
    try:
        with _threads(request.threads):
            return _result(request, sets, call)
    except RunError as error:
        return Failure("refused", str(error))
    finally:
        runner.close()


def _result(
    request: Request, sets: Sequence[Sequence[Any]], call: Callable[..., Sequence[CallResult]]
) -> Result:
    """Call a program for its outputs, then time each set of inputs in its initial state."""
    outputs = call(sets, 0) if request.outputs else []
    chosen = range(len(sets)) if request.timed is None else request.timed
    times = [
        _timed(request, partial(call, [inputs])) if index in chosen else ()
        for index, inputs in enumerate(sets)
    ]
    return Result(tuple(times), tuple(tuple(o.outputs) for o in outputs))


def _timed(request: Request, call: Callable[[int], Sequence[CallResult]]) -> tuple[int, ...]:
    """Time a call as often as a request wants, once the process has warmed up."""
    pace_ms = call(max(1, request.warmup))[0].median_ms
    # Its state may not allow that many calls.
    with contextlib.suppress(RunError):
        call(int(request.warmup_s * 1000 / pace_ms))
    fitting = max(1 if pace_ms > _LONG_MS else 3, int(request.seconds * 1000 / pace_ms))
    (result,) = call(request.warmup + min(request.repetitions, fitting))
    return tuple(round(ms * 1e6) for ms in result.latency_ms[request.warmup :])


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Give the processes that are started meanwhile a number of threads, and of processors.

    On systems without `sched_setaffinity`, such as macOS, they have all processors.
    """
    with patch.dict(os.environ, dict.fromkeys(THREADS, str(count))):
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, sorted(allowed)[-count:])
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)
