"""The process that tries cases: it has imported ExecuTorch, and forks for each of them.

A fork that crashes or hangs leaves the process as it was, so that nothing is imported twice.
"""

from __future__ import annotations

import copy
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
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
    plain,
)
from etdev_reduce.flows import PORTABLE, Flow
from etdev_reduce.forks import Fork, Tell, forked

# The threads of this process, and the time in which a flow lowers one layer.
_THREADS, _WARM_S = "/proc/self/task/*", 8.0
# Characters that a logged error is cut after.
_CAUSE = 200


@frozen(eq=False)
class Trial:
    """A case to try.

    Args:
        source: Python that makes `model`, `eager`, `calls` and `program`.
        values: The values that it reads as `values`.
        flow: Lowers it.
        tolerance: Largest error relative to the largest value of an output; None goes by dtype.
        slow: Count it as slow if portable kernels are this many times as fast; 0 for never.
        drawn: For each call of each method, whether its outputs may be off as far as perturbations
            move them.
    """

    source: str
    values: Mapping[str, Any]
    flow: Flow
    tolerance: float | None = None
    slow: float = 0.0
    drawn: Mapping[str, Sequence[bool]] = {"forward": (False,)}


def judge(trial: Trial, limit_s: float) -> Iterator[Failure]:
    """Try a case in a fork of this process, and yield what became of it."""
    _warm_up(trial.flow.statements)
    with tempfile.TemporaryDirectory() as folder:
        ended = forked(partial(_try, trial, folder), limit_s, "export")
    yield evolve(_failure(ended, limit_s), seconds=ended.seconds)


def _failure(ended: Fork, limit_s: float) -> Failure:
    """Return what became of a case, by how its fork ended."""
    failure = ended.result or Failure(ERROR, "", f"exit {ended.code}", f"ended with {ended.code}")
    if ended.hangs:
        failure = Failure(HANG, detail=f"no answer in {limit_s:g} s")
    elif ended.signal and not ended.result:
        failure = Failure(CRASH, "", ended.signal, ended.signal)
    if failure.kind == RIGHT:
        return failure
    cause = plain(ended.cause)[:_CAUSE] if ended.stage in ("load", "run") else ""
    if failure.kind == ERROR and cause:
        failure = evolve(failure, identity=f"{failure.identity} {pattern(cause)}")
    return evolve(failure, stage=ended.stage, cause=cause if failure.kind in (ERROR, CRASH) else "")


@cache
def _warm_up(statements: str) -> None:
    """Import and cache, once in this process, what every case of a flow needs: lower a layer.

    Nothing is run and nothing is lowered here that starts a thread: forks don't have it.
    """
    torch.set_num_threads(1)
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))

    def count_threads(tell: Tell) -> None:
        before = len(glob(_THREADS))
        _lowered(statements, program)
        tell(len(glob(_THREADS)) - before)

    with quick_decompositions():
        _lowered(PORTABLE.statements, program)
        if forked(count_threads, _WARM_S).result == 0:
            _lowered(statements, program)


def _lowered(statements: str, program: object) -> bytes:
    scope: dict[str, Any] = {"torch": torch, "program": program}
    exec(statements, scope)
    return bytes(scope["buffer"])


def _try(trial: Trial, folder: str, tell: Tell) -> None:
    """Try a case in the fork, in a folder of its own."""
    warnings.simplefilter("ignore")
    os.chdir(folder)
    try:
        tell(_tried(trial, tell))
    except Exception as error:
        tell(of_error(error))


def _tried(trial: Trial, at: Tell) -> Failure:
    scope: dict[str, Any] = {"values": trial.values}
    with quick_decompositions():
        try:
            exec(trial.source, scope)
            calls = [*_calls(scope, trial.drawn)]
            wanted = EagerMethod.replay(
                [(method, pytree.tree_leaves(inputs), far) for _, method, inputs, far in calls]
            )
        except Exception as error:
            return Failure(INVALID, detail=f"{type(error).__name__}: {error}")
        at("lower")
        scope["buffer"] = _lowered(trial.flow.statements, scope["program"])
    at("load")
    # From a file, as a user would: some faults hide where the bytes are in memory.
    exec(script.LOAD, scope)
    loaded = {name: scope["loaded"].load_method(name) for name in trial.drawn}
    at("run")
    for number, ((name, method, inputs, _), call) in enumerate(zip(calls, wanted, strict=True)):
        outputs = EagerMethod.leaves(loaded[name].execute(copy.deepcopy(inputs)))
        if found := _difference(outputs, call, method.program, trial.tolerance):
            return evolve(found, detail=f"in call {number}, {found.detail}", call=number)
    if trial.slow:
        scope.update(inputs=calls[-1][2], method=loaded[name])
        with quick_decompositions():
            exec(script.TIMED.format(method=repr(name)), scope)
        if scope["slow"] > trial.slow * scope["fast"]:
            # A second measurement differs.
            return Failure(SLOW, detail=scope["times"], tolerance=max(1.0, trial.slow / 2))
    return Failure(RIGHT)


def _calls(scope: Mapping[str, Any], drawn: Mapping[str, Sequence[bool]]) -> Iterator[Any]:
    """Yield name of the method, method, inputs and `Trial.drawn` of each call, by method."""
    for name, far in drawn.items():
        own = (scope[key] for key in ("eager", "program", "calls"))
        # Of several methods these are mappings.
        model, program, calls = (known[name] if len(drawn) > 1 else known for known in own)
        method = EagerMethod.of_program(model, program, calls[0])
        yield from ((name, method, *call) for call in zip(calls, far, strict=True))


def _difference(
    outputs: Sequence[torch.Tensor], call: Any, program: ExportedProgram, asked: float | None
) -> Failure | None:
    """Return in which way the outputs of a call are wrong; None if they are right."""
    if len(outputs) != len(call.outputs):
        detail = f"it has {len(outputs)} outputs, in eager PyTorch {len(call.outputs)}"
        return Failure(WRONG, identity="form", detail=detail)
    least = QUANTISED if Tolerance.of(program, relative=0.0).steps else 0.0
    # One by one, as what is near for a float32 is far for a float64.
    for number, (output, wanted) in enumerate(zip(outputs, call.outputs, strict=True)):
        # The last one is for what rounding decides among integers.
        relative = asked or max(dtype_of(wanted.dtype).tolerance, least) or 1e-4
        tolerance = evolve(Tolerance.of(program, relative=relative), rounds=asked is None)
        results = [*call.results]
        results[number] = output
        if problem := tolerance.judge(results, call).problem:
            if " is off by " not in problem:
                way = "not finite" if "NaN" in problem or "inf" in problem else "form"
                return Failure(WRONG, identity=way, detail=problem, tolerance=relative)
            is_exact = not (wanted.is_floating_point() or wanted.is_complex())
            most = 0.0 if is_exact else min(relative, EagerMethod.error([wanted], [output]) / 2)
            return Failure(WRONG, identity="values", detail=problem, tolerance=most)
    return None
