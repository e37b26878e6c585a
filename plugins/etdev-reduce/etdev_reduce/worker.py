"""The process that tries cases: it has imported ExecuTorch, and forks for each of them.

A fork that crashes or hangs leaves the process as it was, so that nothing is imported twice.
"""

from __future__ import annotations

import copy
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import cache, partial
from glob import glob
from typing import Any

import torch
from attrs import evolve, frozen
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from etdev.app import EagerMethod
from etdev.schema.dtypes import dtype_of
from etdev.upstream.shortcuts.decompositions import quick_decompositions
from etdev.verify.tolerance import QUANTISED, Tolerance
from etdev_reduce import script
from etdev_reduce.failure import (
    CRASH,
    ERROR,
    HANG,
    INVALID,
    RIGHT,
    SLOW,
    WRONG,
    Failure,
    of_error,
    pattern,
)
from etdev_reduce.flows import PORTABLE, Flow
from etdev_reduce.forks import Tell, forked

_TIMED = 7
# The threads of this process, and the time in which a flow lowers one layer.
_THREADS, _WARM_S = "/proc/self/task/*", 120.0
# Characters that a logged error is cut after.
_CAUSE = 200


@frozen(eq=False)
class Trial:
    """A case to try.

    Args:
        source: Python that makes `model`, `calls` and `dynamic_shapes`.
        values: The file of the values that it reads as `values`; empty for none.
        flow: Lowers it.
        tolerance: Largest error relative to the largest value of an output; None goes by dtype.
        slow: Count it as slow if portable kernels are this many times as fast; 0 for never.
        drawn: For each call, whether its outputs may be off as far as perturbations move them.
    """

    source: str
    values: str
    flow: Flow
    tolerance: float | None = None
    slow: float = 0.0
    drawn: Sequence[bool] = (False,)


def judge(trial: Trial, limit_s: float) -> Iterator[Failure]:
    """Try a case in a fork of this process, and yield what became of it."""
    with tempfile.TemporaryDirectory() as folder:
        ended = forked(partial(_try, trial, folder), limit_s, "export")
    stage, failure, cause = ended.stage, ended.result, ended.cause[:_CAUSE]
    if failure is None and ended.hangs:
        failure = Failure(HANG, stage, "", f"no answer in {limit_s:g} s")
    elif failure is None and not ended.signal:
        failure = Failure(ERROR, stage, f"exit {ended.code}", f"ended with {ended.code}")
    elif failure is None:
        failure = Failure(CRASH, stage, ended.signal, ended.signal)
    if failure.kind == ERROR and stage in ("load", "run"):
        failure = evolve(failure, identity=f"{failure.identity} {pattern(cause)}")
    yield evolve(failure, cause=cause, seconds=ended.seconds)


def warm(flow: Flow) -> Iterator[None]:
    """Import and cache, once in this process, what every case of a flow needs."""
    _warm_up(flow.statements)
    yield


@cache
def _warm_up(statements: str) -> None:
    """Lower a layer, for what is cached then, such as the patterns of a partitioner.

    Nothing is run and nothing is lowered here that starts a thread: forks don't have it.
    """
    torch.set_num_threads(1)
    # The second layer is for a flow that starts a thread for the first one.
    for layer in (torch.nn.Linear(2, 2), torch.nn.ReLU()):
        program = torch.export.export(layer, (torch.ones(1, 2),))
        with quick_decompositions():
            _lowered(PORTABLE.statements, program)
            if forked(partial(_count_threads, statements, program), _WARM_S).result == 0:
                _lowered(statements, program)
                return


def _count_threads(statements: str, program: ExportedProgram, tell: Tell) -> None:
    """Tell how many threads a flow starts."""
    before = len(glob(_THREADS))
    _lowered(statements, program)
    tell(len(glob(_THREADS)) - before)


def _lowered(statements: str, program: ExportedProgram) -> bytes:
    scope: dict[str, Any] = {"torch": torch, "program": program}
    exec(statements, scope)
    return bytes(scope["buffer"])


@cache
def _values(file: str) -> dict[str, Any]:
    known: dict[str, Any] = torch.load(file, weights_only=False, mmap=True)
    return known


def _try(trial: Trial, folder: str, tell: Tell) -> None:
    """Try a case in the fork, in a folder of its own."""
    warnings.simplefilter("ignore")
    os.chdir(folder)
    told = ["export"]

    def at(stage: str) -> None:
        told.append(stage)
        tell(stage)

    try:
        failure = _tried(trial, at)
    except Exception as error:
        failure = of_error(error, told[-1])
    tell(failure)


def _tried(trial: Trial, at: Tell) -> Failure:
    scope: dict[str, Any] = {"values": _values(trial.values) if trial.values else {}}
    with quick_decompositions():
        try:
            exec(script.made(trial.source), scope)
            exec(script.EXPORT, scope)
            program, calls = scope["program"], scope["calls"]
            eager = EagerMethod.of_program(scope["eager"], program, calls[0])
            expected = eager.replay(list(map(pytree.tree_leaves, calls)), trial.drawn)
        except Exception as error:
            return Failure(INVALID, "export", detail=f"{type(error).__name__}: {error}")
        at("lower")
        scope["buffer"] = _lowered(trial.flow.statements, program)
    at("load")
    # From a file, as a user would: some faults hide where the bytes are in memory.
    exec(script.LOAD, scope)
    at("run")
    for step, call in enumerate(expected):
        outputs = EagerMethod.leaves(scope["method"].execute(copy.deepcopy(calls[step])))
        if found := _difference(outputs, call, program, trial.tolerance):
            return evolve(found, detail=f"in call {step}, {found.detail}", call=step)
    if trial.slow:
        seconds = _seconds(scope)
        with quick_decompositions():
            scope["buffer"] = _lowered(PORTABLE.statements, program)
        exec(script.LOAD, scope)
        portable = _seconds(scope)
        if seconds > trial.slow * portable:
            times = f"{seconds * 1e3:.3g} ms, portable kernels {portable * 1e3:.3g} ms"
            return Failure(SLOW, "run", "", times)
    return Failure(RIGHT)


def _seconds(scope: dict[str, Any]) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(_TIMED):
        start = time.perf_counter()
        scope["method"].execute(scope["calls"][-1])
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _difference(
    outputs: Sequence[Any], call: Any, program: ExportedProgram, asked: float | None
) -> Failure | None:
    """Return in which way the outputs of a call are wrong; None if they are right."""
    if len(outputs) != len(call.outputs):
        detail = f"it has {len(outputs)} outputs, in eager PyTorch {len(call.outputs)}"
        return Failure(WRONG, "run", "form", detail)
    is_quantised = bool(Tolerance.of(program, relative=0.0).steps)
    # One by one, as what is near for a float32 is far for a float64.
    for number, (output, wanted) in enumerate(zip(outputs, call.outputs, strict=True)):
        usual = dtype_of(wanted.dtype).tolerance if isinstance(wanted, torch.Tensor) else 0.0
        relative = asked or max(usual, QUANTISED * is_quantised) or 1e-4
        tolerance = evolve(Tolerance.of(program, relative=relative), rounds=asked is None)
        results = [*call.results]
        results[number] = output
        if problem := tolerance.judge(results, call).problem:
            way = "values" if " is off by " in problem else "form"
            way = "not finite" if "NaN" in problem or "inf" in problem else way
            most = _allowed(output, wanted, tolerance) if way == "values" else relative
            return Failure(WRONG, "run", way, problem, tolerance=most)
    return None


def _allowed(value: Any, expected: Any, tolerance: Tolerance) -> float:
    """Return the smallest error that is too large, relative to the largest value."""
    output, wanted = torch.as_tensor(value), torch.as_tensor(expected)
    allowed, largest = tolerance.allowed(wanted), wanted.double().nan_to_num(0, 0, 0).abs().max()
    wrong = allowed[EagerMethod.errors(output, wanted) > allowed]
    return float(wrong.min() / largest) if largest and wrong.numel() else 0.0
