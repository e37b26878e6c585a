"""Data of a search for precisions: calls to calibrate on, and others to judge by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen
from torch.export import ExportedProgram

from etdev.app import EagerMethod
from etdev.errors import TuneError, first_line
from etdev_tune.cases import Case, Leaves, cases_of
from etdev_tune.metric import Metric
from etdev_tune.precision.application import bounds

_CURE = "write it with torch.save([call, ...], FILE), each call a tuple of inputs"
# At most this many of the judging calls are timed.
_TIMED = 2


@frozen(eq=False)
class Data:
    """Calls of every method in eager PyTorch, apart for calibration and for judging."""

    calibration: tuple[Case, ...]
    judging: tuple[Case, ...]

    @property
    def metric(self) -> float | None:
        """The metric's least value in eager PyTorch; None without a metric."""
        scored = ((case, case.metric) for case in self.judging if case.metric)
        figures = [metric([c.outputs for c in case.calls], case.calls) for case, metric in scored]
        return min(figures, default=None)


def load_data(path: Path) -> Any:
    """Load a file of calls, as `data_of` takes them."""
    try:
        return torch.load(path, weights_only=True)
    except Exception as error:
        raise TuneError(str(path), f"can't be loaded ({first_line(error)})", _CURE) from error


def data_of(
    methods: Mapping[str, EagerMethod], data: Any, metric: Callable[..., Any] | None = None
) -> Data:
    """Split calls: every second one judges, and the others calibrate.

    Args:
        methods: Methods by name, in eager PyTorch.
        data: A list of calls, each a tuple of inputs or one tensor; by method in a dict.
        metric: A figure of the outputs of the judging calls.

    Raises:
        TuneError: There are fewer than two calls of a method, or one that it doesn't take.
    """
    given = data if isinstance(data, Mapping) else {"forward": data}
    if missing := [name for name in methods if name not in given]:
        what = f"has no calls of method {missing[0]!r}"
        raise TuneError("data", what, "give a dict of calls by method")
    calls = {name: _calls(methods[name], given[name]) for name in methods}
    halves = [{name: own[start::2] for name, own in calls.items()} for start in (0, 1)]
    calibration, judging = (cases_of(methods, half, least=0) for half in halves)
    scored = Metric(metric) if metric else None
    judged = [evolve(case, timed=case.timed[:_TIMED], metric=scored) for case in judging]
    return Data(tuple(calibration), tuple(judged))


def _calls(method: EagerMethod, data: Any) -> list[Leaves]:
    who = f"data of method {method.name!r}"
    if not isinstance(data, (list, tuple)):
        raise TuneError(who, f"is {type(data).__name__}, not a list of calls", _CURE)
    if len(data) < 2:
        what = f"has {len(data)} call{'s' * (len(data) != 1)}"
        cure = "give at least two: one to calibrate on, another one to judge by"
        raise TuneError(who, what, cure)
    calls = [Leaves(EagerMethod.leaves(call)) for call in data]
    for number, call in enumerate(calls):
        if problem := _problem(call, method.program):
            what = f"call {number} has {problem}"
            raise TuneError(who, what, "leave that call out, or change what the method takes")
    return calls


def _problem(call: Leaves, program: ExportedProgram) -> str:
    """Return why a call can't be taken; empty if it can, as far as its tensors tell."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    names = [name for name in program.graph_signature.user_inputs if name is not None]
    for index, (value, name) in enumerate(zip(call, names, strict=False)):
        wanted = values.get(name)
        if isinstance(wanted, torch.Tensor) and not _fits(value, wanted, program):
            takes = f"{wanted.dtype} {list(wanted.shape)}"
            given = f"{value.dtype} {list(value.shape)}" if torch.is_tensor(value) else repr(value)
            return f"{given} for input {index}, which takes {takes}"
        if torch.is_tensor(value) and value.is_floating_point() and not value.isfinite().all():
            return "NaN or infinite values, which have no scale"
    return ""


def _fits(value: Any, wanted: torch.Tensor, program: ExportedProgram) -> bool:
    if not torch.is_tensor(value) or value.dtype != wanted.dtype or value.dim() != wanted.dim():
        return False
    ranges = [bounds(s, program) if isinstance(s, torch.SymInt) else (s, s) for s in wanted.shape]
    sizes = zip(value.shape, ranges, strict=True)
    return all((low or 0) <= n and (high is None or n <= high) for n, (low, high) in sizes)
