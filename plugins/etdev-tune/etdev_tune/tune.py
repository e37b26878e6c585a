"""`etdev.tune` finds the fastest composition of the installed plugins by measuring."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from etdev.app import EagerMethod, ProgramFile, Setup, files
from etdev.errors import TuneError
from etdev_tune.builder import Builder
from etdev_tune.candidate import Candidate
from etdev_tune.cases import cases_of, weighted
from etdev_tune.comparison import Clock, Comparison
from etdev_tune.exchange import Policy, Runner
from etdev_tune.finish import finish
from etdev_tune.measurer import Listener, Measurer
from etdev_tune.outputs import Outputs, Tuning
from etdev_tune.precision.data import data_of
from etdev_tune.precision.exploration import Exploration
from etdev_tune.precision.schemes import schemes_of
from etdev_tune.record import LATENCY, OBJECTIVES, SIZE
from etdev_tune.report import Limits
from etdev_tune.runners import open_runner
from etdev_tune.search import Search
from etdev_tune.store import Store, default_folder


def tune(  # noqa: PLR0913 - a keyword for each setting, as for `Lowerer`
    model: object,
    inputs: Any = None,
    path: str | os.PathLike[str] = "model.pte",
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    measured_on: Any = None,
    weights: Mapping[str, float] | None = None,
    precision: str | Sequence[str] | None = None,
    data: Any = None,
    metric: Callable[..., Any] | None = None,
    metric_drop: float | None = None,
    max_size: int | None = None,
    budget_s: float = 600.0,
    tolerance: float | None = None,
    objective: str = LATENCY,
    on: Runner | None = None,
    runner: str | None = None,
    policy: Policy | int = 1,
    store: str | os.PathLike[str] | bool | None = None,
    listener: Listener | None = None,
    **lowering: Any,
) -> Tuning:
    """Find the fastest composition whose outputs stay within a tolerance of eager PyTorch.

    The untuned plan, each plugin alone and portable kernels alone are always among the candidates,
    as far as the budget lasts. The best is measured once more against the untuned plan, alternately
    in fresh processes; without a clear win the untuned plan is kept. A registry file that lowers
    the model to the same bytes, a lock and the report are written next to the .pte; all of them or
    none.

    With a precision, it finds one for each layer: recipes that no other one beats in error, latency
    and size. The cheapest within the limits is written, and a mixed configuration only if it
    is clearly better than the best uniform scheme within them.

    Measurements are kept: stopped and started again, a tuning continues.

    Args:
        model: As for `Lowerer.lower`, like `inputs`, `kwargs` and `dynamic_shapes`.
        inputs: Example inputs.
        path: The .pte to write.
        kwargs: Example inputs by keyword.
        dynamic_shapes: As `torch.export.export` takes them.
        measured_on: Inputs to measure on: the arguments of a call as a tuple, or a list of such
            tuples; by method in a dict. None takes the example inputs, and dynamic sizes at their
            bounds.
        weights: Calls of each method in use, such as `{"prefill": 1, "decode": 128}`; the time of
            methods without a number doesn't count. None counts every timed call alike.
        precision: `auto`, or the schemes to try, such as `8da8w` and `cpu:int8`; None to keep it.
        data: Calls of a search for precisions, each a tuple of inputs; by method in a dict. Every
            second one judges the candidates, the others calibrate.
        metric: Function of outputs, of eager PyTorch's outputs and of inputs, each a list by call;
            more is better.
        metric_drop: By how much the metric may be less than eager PyTorch's.
        max_size: Largest size of .pte and .ptd in bytes.
        budget_s: Seconds that it may take. A lowering or process that has begun is finished. The
            untuned plan is always lowered and measured, since it is the fallback.
        tolerance: Largest error, relative to the largest value of an output. By default 1e-3; with
            a precision 1e-2, or any if the metric has a limit.
        objective: `latency`, `size` of the files and of the libraries that a C++ program needs for
            them, or peak `memory`.
        on: What measures; None for `target` of the arguments of `Lowerer`, which is this machine
            by default.
        runner: Name of the runtime that runs programs, such as `cpp`; None for the ones that
            plugins name for their delegates, else executorch.runtime, and on a target `cpp`.
        policy: Settings of each measurement, or just the number of threads.
        store: Folder of measurements; None for the one that the environment variable
            ETDEV_MEASUREMENTS names, else one in the user's cache directory; False for none.
        listener: Called with a stage and a detail as the work goes on.
        **lowering: Arguments of `Lowerer`, which every candidate keeps to. A `cache` makes
            candidates cheap.

    Raises:
        TuneError: No inputs exercise the model, it draws random numbers, no candidate is within
            the tolerance, or an argument makes no sense.
        RunError: The target or the runner isn't there, or is lost.
        EtdevError: As `Lowerer.lower`.

    Example:
        tuning = etdev.tune(module, (example,), "model.pte", budget_s=120)
        print(tuning.report.verdict)
    """
    outputs = Outputs(Path(path))
    outputs.check()
    limits = _limits(tolerance, metric_drop, max_size, precision is not None)
    if objective not in OBJECTIVES:
        raise TuneError("objective", f"is {objective!r}", f"valid are {', '.join(OBJECTIVES)}")
    if objective == SIZE:
        # Refuses it where etdev-cpp is missing, which counts the libraries.
        ProgramFile.check_libraries()
    if metric_drop is not None and metric is None:
        raise TuneError("metric-drop", "needs a metric", "name one with --metric file.py:function")
    clock = Clock(budget_s)
    folder = default_folder() if store is None or store is True else store
    kept = Store(Path(folder) if folder else None)
    say = listener or (lambda *_: None)
    setup = Setup.of(**lowering)
    schemes = schemes_of(precision, setup.plugins.values()) if precision else {}
    methods = EagerMethod.of_model(model, inputs, kwargs, dynamic_shapes)
    how = Policy(threads=policy) if isinstance(policy, int) else policy
    plugins = tuple(setup.plugins.values())
    target = on or open_runner(lowering.get("target"), plugins, runner)
    try:
        say("target", target.name)
        fingerprint = target.fingerprint()
        kept.check()
        say("reference", "eager PyTorch")
        with files.scratch() as builds:
            builder = Builder(methods, setup, Path(builds))
            known = data_of(methods, data, metric) if precision else None
            cases = known.judging if known else cases_of(methods, measured_on)
            cases = weighted(cases, weights) if weights else cases
            if known and known.metric is not None and metric_drop is not None:
                limits = evolve(limits, metric=known.metric - metric_drop)
            measurer = Measurer(target, fingerprint, cases, how, kept, say)
            comparison = Comparison(measurer, objective, limits, clock)
            parts = builder, comparison, clock, say
            search = Exploration(*parts, data=known, schemes=schemes) if known else Search(*parts)
            search.run()
            return finish(search, outputs)
    finally:
        if not on:
            target.close()


def write_point(
    number: int,
    methods: Mapping[str, Any],
    path: str | os.PathLike[str],
    listener: Listener | None = None,
    **lowering: Any,
) -> Tuning:
    """Write another candidate of an earlier tuning, without data and without measuring.

    Args:
        number: Its number in the table of `etdev tune --show`.
        methods: The methods that were tuned, as `Lowerer.lower` takes them in a dict.
        path: The .pte of the tuning, which is replaced with the files beside it.
        listener: Called with a stage and a detail as the work goes on.
        **lowering: Arguments of `Lowerer`, as for `tune`.

    Raises:
        TuneError: No such candidate ran.
        EtdevError: As `Lowerer.lower`.
    """
    outputs = Outputs(Path(path))
    report = outputs.read_report()
    trial = report.point(number)
    outputs.check()
    if listener:
        listener("write", trial.name)
    candidate = Candidate(trial.name, trial.plugins, trial.options, trial.pins)
    with files.scratch() as builds, files.unseen(outputs.program) as folder:
        hidden = Outputs(folder / outputs.program.name)
        builder = Builder(EagerMethod.of_model(methods), Setup.of(**lowering), Path(builds))
        build, lock = builder.final(candidate, hidden.program, hidden.registry)
        report = evolve(report, chosen=trial.name, verdict=f"{trial.name}: asked for by its number")
        outputs.publish(hidden, lock, report)
    return Tuning(outputs.program, outputs.registry, outputs.lock, build.plan, report)


def _limits(
    tolerance: float | None, metric_drop: float | None, max_size: int | None, precise: bool
) -> Limits:
    for name, value in (("tolerance", tolerance), ("metric-drop", metric_drop)):
        if value is not None and not 0 <= value < math.inf:
            cure = "give a number of at least 0, such as 1e-3"
            raise TuneError(name, f"is {value!r}", cure)
    if tolerance is None and metric_drop is None:
        tolerance = 1e-2 if precise else 1e-3
    return Limits(tolerance, size_bytes=max_size)
