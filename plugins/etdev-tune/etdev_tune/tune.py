"""`etdev.tune` finds the fastest composition of the installed plugins by measuring."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etdev.edge.source import methods_of
from etdev.errors import TuneError
from etdev.files import check_program, scratch
from etdev.schema.stages import Listener
from etdev_tune.builder import Builder, Setup
from etdev_tune.cases import cases_of
from etdev_tune.contest import Clock, Contest
from etdev_tune.exchange import Policy, Runner
from etdev_tune.finish import finish
from etdev_tune.measurer import Measurer
from etdev_tune.outputs import Outputs, Tuning
from etdev_tune.record import LATENCY, OBJECTIVES
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
    budget_s: float = 600.0,
    tolerance: float = 1e-3,
    objective: str = LATENCY,
    on: Runner | str = "local",
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
        budget_s: Seconds that it may take. A lowering or process that has begun is finished. The
            untuned plan is always lowered and measured, since it is the fallback.
        tolerance: Largest error, relative to the largest value of an output.
        objective: `latency`, `size` of the files and of the libraries that a C++ program needs for
            them, or peak `memory`.
        on: A target, or the name of one: `local`, `ssh:host`, `adb`, a command template.
        runner: Name of the runtime that runs programs on this machine, such as `cpp`; None for the
            ones that plugins name for their delegates, else executorch.runtime.
        policy: Settings of each measurement, or just the number of threads.
        store: Folder of measurements; None for the one that the environment variable
            ETDEV_MEASUREMENTS names, else one in the user's cache directory; False for none.
        listener: Called with a stage and a detail as the work goes on.
        **lowering: Arguments of `Lowerer`, which every candidate keeps to: `plugins`, `registry`,
            `devices`, `pins`, `limits`, `budget`, `strict`, `simplify`, `cache` (which makes
            candidates cheap), `jobs`, `on_failure`.

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
    check_program(outputs.program)
    _check(tolerance, objective)
    clock = Clock(budget_s)
    folder = default_folder() if store is None or store is True else store
    kept = Store(Path(folder) if folder else None)
    say = listener or (lambda *_: None)
    setup = Setup.of(**lowering)
    methods = methods_of(model, inputs, kwargs, dynamic_shapes)
    how = Policy(threads=policy) if isinstance(policy, int) else policy
    plugins = tuple(setup.plugins.values())
    target = open_runner(on, plugins, runner) if isinstance(on, str) else on
    try:
        say("target", target.name)
        fingerprint = target.fingerprint()
        kept.check()
        say("reference", "eager PyTorch")
        cases = cases_of(methods, measured_on)
        measurer = Measurer(target, fingerprint, cases, how, kept, say)
        contest = Contest(measurer, objective, tolerance, clock)
        with scratch() as builds:
            search = Search(Builder(methods, setup, Path(builds)), contest, clock, say)
            search.run()
            return finish(search, outputs)
    finally:
        if isinstance(on, str):
            target.close()


def _check(tolerance: float, objective: str) -> None:
    if not 0 <= tolerance < math.inf:
        what = f"is {tolerance!r}"
        raise TuneError("tolerance", what, "give a number of at least 0, such as 1e-3")
    if objective not in OBJECTIVES:
        raise TuneError("objective", f"is {objective!r}", f"valid are {', '.join(OBJECTIVES)}")
