"""The process that tries cases: it has imported ExecuTorch, and forks for each of them.

A fork that crashes or hangs leaves the process as it was, so that nothing is imported twice.
"""

from __future__ import annotations

import copy
import math
import operator
import signal
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from etdev.schema.dtypes import dtype_of
from etdev.upstream.shortcuts.decompositions import quick_decompositions
from etdev.verify.tolerance import QUANTISED, Tolerance
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
from etdev_reduce.forks import forked

# An output may move this many times as far as under the smallest errors of inputs and weights.
_MARGIN, _RUNS = 8.0, 4
_TIMED = 7
# The threads of this process, and the time in which a flow lowers one layer.
_THREADS, _WARM_S = "/proc/self/task/*", 120.0
# Characters that a logged error is cut after.
_CAUSE = 200
# The ops of quantised programs, whose kernels a user has to load.
_QUANTISED = "quantized_decomposed"
# Names of the flows whose modules are imported.
_WARM = set[str]()


@frozen(eq=False)
class Trial:
    """A case to try.

    Args:
        source: Python that makes `model`, `calls` and `dynamic_shapes`.
        values: The file of the values that it reads as `values`; empty for none.
        flow: Lowers it.
        tolerance: Largest error relative to the largest value of an output; None goes by dtype.
        slow: Count it as slow if portable kernels are this many times as fast; 0 for never.
    """

    source: str
    values: str
    flow: Flow
    tolerance: float | None = None
    slow: float = 0.0


def warm(flow: Flow) -> Iterator[None]:
    """Import and cache, once in this process, what every case of a flow needs."""
    if flow.name not in _WARM:
        _warm_up(flow)
        _WARM.add(flow.name)
    yield


def judge(trial: Trial, limit_s: float) -> Iterator[Failure]:
    """Try a case in a fork of this process, and yield what became of it."""
    ended = forked(partial(_try, trial, limit_s), limit_s, "export")
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


def _warm_up(flow: Flow) -> None:
    """Lower a layer, for what is cached then, such as the patterns of a partitioner.

    Nothing is run and nothing is lowered here that starts a thread: forks don't have it.
    """
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime  # noqa: F401

    torch.set_num_threads(1)
    # The second layer is for a flow that starts a thread for the first one.
    for layer in (torch.nn.Linear(2, 2), torch.nn.ReLU()):
        program = torch.export.export(layer, (torch.ones(1, 2),))
        with quick_decompositions():
            to_edge_transform_and_lower(program).to_executorch()
            tried = forked(partial(_count_threads, flow, program), _WARM_S)
            if tried.result == 0:
                flow.lower(program)
                return


def _count_threads(flow: Flow, program: ExportedProgram, tell: Callable[[Any], None]) -> None:
    """Tell how many threads a flow starts."""
    before = len(glob(_THREADS))
    flow.lower(program)
    tell(len(glob(_THREADS)) - before)


def tolerance_of(dtypes: Iterable[Any]) -> float:
    """Return the largest error of outputs, relative to their largest value."""
    return max((dtype_of(dtype).tolerance for dtype in dtypes), default=0.0) or 1e-4


@cache
def _values(file: str) -> dict[str, Any]:
    known: dict[str, Any] = torch.load(file, weights_only=False, mmap=True)
    return known


def _try(trial: Trial, limit_s: float, tell: Callable[[Any], None]) -> None:
    """Try a case in the fork."""
    # Its parent may be killed meanwhile.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(limit_s) + 5)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    stages = _Stages(tell)
    try:
        failure = _tried(trial, stages)
    except Exception as error:
        failure = of_error(error, stages.stage)
    tell(failure)


class _Stages:
    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell, self.stage = tell, "export"

    def tell(self, stage: str) -> None:
        self.stage = stage
        self._tell(stage)


def _tried(trial: Trial, stages: _Stages) -> Failure:
    scope: dict[str, Any] = {"torch": torch, "math": math, "operator": operator}
    if _QUANTISED in trial.source:
        import_module("executorch.kernels.quantized")
    try:
        scope["values"] = _values(trial.values) if trial.values else {}
        exec(trial.source, scope)
        model, calls = scope["model"], scope["calls"]
        _called(copy.deepcopy(model), calls)
    except Exception as error:
        return Failure(INVALID, detail=f"{type(error).__name__}: {error}")
    shapes, example = scope["dynamic_shapes"], copy.deepcopy(calls[0])
    with torch.no_grad(), quick_decompositions():
        try:
            program = torch.export.export(model, example, dynamic_shapes=shapes)
        except Exception as error:
            return Failure(INVALID, "export", detail=f"{type(error).__name__}: {error}")
        stages.tell("lower")
        buffer = trial.flow.lower(program)
    ran, seconds = _ran(buffer, calls, stages)
    for step, outputs in enumerate(ran):
        if problem := _difference(outputs, trial, model, calls[: step + 1]):
            way, detail = problem
            return Failure(WRONG, "run", way, f"in call {step}, {detail}")
    if trial.slow:
        portable = _ran(PORTABLE.lower(program), calls, stages)[1]
        if seconds > trial.slow * portable:
            times = f"{seconds * 1e3:.3g} ms, portable kernels {portable * 1e3:.3g} ms"
            return Failure(SLOW, "run", "", times)
    return Failure(RIGHT)


def _ran(buffer: bytes, calls: Sequence[Any], stages: _Stages) -> tuple[list[list[Any]], float]:
    """Run all calls in one loaded method; return their outputs, and the time of the last one."""
    from executorch.runtime import Runtime

    stages.tell("load")
    # From a file, as a user would: some faults hide where the bytes are in memory.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "case.pte")
        path.write_bytes(buffer)
        program = Runtime.get().load_program(path)
        method = program.load_method("forward")
        stages.tell("run")
        outputs = []
        for inputs in calls:
            values = method.execute(copy.deepcopy(inputs))
            outputs.append([_own(value) for value in values])
        times = []
        for _ in range(_TIMED):
            start = time.perf_counter()
            method.execute(calls[-1])
            times.append(time.perf_counter() - start)
    return outputs, statistics.median(times)


def _own(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _called(model: torch.nn.Module, calls: Sequence[Any]) -> list[Any]:
    """Return the outputs of the last of some calls in eager PyTorch."""
    with torch.no_grad():
        values = [pytree.tree_leaves(model(*copy.deepcopy(inputs))) for inputs in calls][-1]
    return [_own(value) for value in values if value is not None]


def _difference(
    outputs: Sequence[Any], trial: Trial, model: torch.nn.Module, calls: Sequence[Any]
) -> tuple[str, str] | None:
    """Return in which way outputs of the last call are wrong, and how; None if they are right."""
    expected = _called(copy.deepcopy(model), calls)
    if len(outputs) != len(expected):
        return "form", f"it has {len(outputs)} outputs, in eager PyTorch {len(expected)}"
    is_quantised = _QUANTISED in trial.source
    moved: list[Any] = []
    # One by one, as what is near for a float32 is far for a float64.
    for number, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        dtypes = [wanted.dtype] if isinstance(wanted, torch.Tensor) else []
        usual = max(tolerance_of(dtypes), QUANTISED * is_quantised)
        tolerance = Tolerance(relative=trial.tolerance or usual, steps=int(is_quantised))
        if tolerance.difference(output, wanted):
            # Rounding alone may explain it.
            moved = moved or _moved(model, calls)
            if problem := tolerance.difference(output, wanted, moved=moved[number]):
                way = "values" if problem.startswith("is off by ") else "form"
                way = "not finite" if "NaN" in problem or "inf" in problem else way
                return way, f"output {number} {problem}"
    return None


def _moved(model: torch.nn.Module, calls: Sequence[Any]) -> list[torch.Tensor]:
    """Return how far each number of the last call's outputs may move by rounding."""
    numbers = torch.Generator().manual_seed(0)

    def off(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        signs = torch.randint(2, value.shape, generator=numbers) * 2 - 1
        return value + value * signs * torch.finfo(value.dtype).eps

    known = _called(copy.deepcopy(model), calls)
    far = [torch.zeros(torch.as_tensor(value).shape, dtype=torch.float64) for value in known]
    for _ in range(_RUNS):
        other = copy.deepcopy(model)
        with torch.no_grad():
            for weight in (*other.parameters(), *other.buffers()):
                weight.copy_(off(weight))
        made = _called(other, [pytree.tree_map(off, inputs) for inputs in calls])
        for most, value, own in zip(far, made, known, strict=False):
            a, b = torch.as_tensor(value), torch.as_tensor(own)
            if a.shape == b.shape and b.is_floating_point():
                most.copy_(most.maximum(_MARGIN * (a - b).abs().double().nan_to_num(0.0)))
            elif a.shape == b.shape:
                # Rounding decides it.
                most[a != b] = float("inf")
    return far
