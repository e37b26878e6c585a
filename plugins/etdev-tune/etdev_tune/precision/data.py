"""Data of a search for precisions: calls to calibrate on, and others to judge by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen

from etdev.edge.reference import Reference
from etdev.edge.source import FORWARD
from etdev.errors import TuneError, first_line
from etdev.runtime.compare import flat
from etdev_tune.cases import Case, Leaves, cases_of
from etdev_tune.metric import Metric

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
    methods: Mapping[str, Reference], data: Any, metric: Callable[..., Any] | None = None
) -> Data:
    """Split calls: every second one judges, and the others calibrate.

    Args:
        methods: Methods by name, in eager PyTorch.
        data: A list of calls, each a tuple of inputs or one tensor; by method in a dict.
        metric: A figure of the outputs of the judging calls.

    Raises:
        TuneError: There are fewer than two calls of a method, or an input is NaN or infinite.
    """
    given = data if isinstance(data, Mapping) else {FORWARD: data}
    if missing := [name for name in methods if name not in given]:
        what = f"has no calls of method {missing[0]!r}"
        raise TuneError("data", what, "give a dict of calls by method")
    calls = {name: _calls(name, given[name]) for name in methods}
    halves = [{name: own[start::2] for name, own in calls.items()} for start in (0, 1)]
    calibration, judging = (cases_of(methods, half, least=0) for half in halves)
    scored = Metric(metric) if metric else None
    judged = [evolve(case, timed=case.timed[:_TIMED], metric=scored) for case in judging]
    return Data(tuple(calibration), tuple(judged))


def _calls(method: str, data: Any) -> list[Leaves]:
    who = f"data of method {method!r}"
    if not isinstance(data, (list, tuple)):
        raise TuneError(who, f"is {type(data).__name__}, not a list of calls", _CURE)
    if len(data) < 2:
        what = f"has {len(data)} call{'s' * (len(data) != 1)}"
        cure = "give at least two: one to calibrate on, another one to judge by"
        raise TuneError(who, what, cure)
    calls = [Leaves(flat(call)) for call in data]
    for number, call in enumerate(calls):
        floats = [v for v in call if isinstance(v, torch.Tensor) and v.is_floating_point()]
        if not all(bool(value.isfinite().all()) for value in floats):
            what = f"call {number} has NaN or infinite values, which have no scale"
            raise TuneError(who, what, "leave that call out")
    return calls
