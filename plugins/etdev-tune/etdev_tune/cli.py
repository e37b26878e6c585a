"""`etdev tune` finds the fastest composition of the installed plugins by measuring."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from attrs import evolve

from etdev import Plan
from etdev.app import Command, Sheet, options, report, size, working
from etdev.cli import viewing
from etdev_tune.chart import candidates
from etdev_tune.outputs import SUFFIXES, Outputs
from etdev_tune.precision.recipe import FLOAT, PLUGIN, Recipe
from etdev_tune.report import TUNING, Report, Trial

_COLUMNS = (
    *("point", "candidate", "ms", "vs untuned", "error", "size", "libraries", "delegates"),
    *("portable", ""),
)
# Columns of a search for precisions, before those of the size.
_PREDICTED = ("predicted", "metric")
# Options that `tune` takes as they are.
_PASSED = "budget_s", "tolerance", "objective", "runner", "metric_drop", "max_size", "policy"
# Layers that are shown, the most sensitive ones.
_TOP = 8


@click.command("tune", cls=Command, epilog=options.SOURCE)
@click.argument("source", required=False)
@click.option("-o", "--output", type=options.Output(*SUFFIXES), help="The .pte to write.")
@click.option(
    "--budget", "budget_s", default="10m", show_default=True, type=options.DURATION, metavar="TIME",
    help="Time for the search, such as 90s or 10m.",
)  # fmt: skip
@click.option(
    "--tolerance", "--max-error", "tolerance", type=float,
    help="Largest error against PyTorch, relative to the largest value of an output. By default "
    "1e-3; with --precision 1e-2, unless the metric has a limit.",
)  # fmt: skip
@click.option(
    "--inputs", "files", multiple=True, metavar="[METHOD:]FILE",
    help="Measure on inputs that torch.save wrote; repeat it for several.",
)  # fmt: skip
@click.option(
    "--weight", "weights", type=(str, float), multiple=True, metavar="METHOD CALLS",
    help="Calls of a method in use, such as decode 128; times of others don't count then.",
)  # fmt: skip
@click.option(
    "--objective", type=click.Choice(["latency", "size", "memory"]), default="latency",
    show_default=True, help="The cost to reduce; size counts ExecuTorch's libraries, too.",
)  # fmt: skip
@options.runner
@options.target
@click.option(
    "--threads", "policy", type=click.IntRange(1), default=1, show_default=True,
    help="Threads of the runtime and its delegates.",
)  # fmt: skip
@click.option(
    "--store",
    type=options.FILE,
    help="Folder of measurements to reuse; by default ETDEV_MEASUREMENTS, else the user's cache.",
)
@click.option("--no-store", is_flag=True, help="Measure everything, and keep nothing.")
@click.option("--show", is_flag=True, help="Measure nothing: show the tuning of -o.")
@click.option(
    "--point", type=click.IntRange(0), metavar="NUMBER",
    help="Measure nothing: write another candidate of the tuning of -o.",
)  # fmt: skip
@click.option(
    "--precision", metavar="auto|SCHEMES",
    help="Find the precision of each layer: auto, or of schemes such as 8da8w,cpu:int8.",
)  # fmt: skip
@click.option(
    "--data", type=options.FILE,
    help="Calls for --precision that torch.save wrote, a list of tuples of inputs: half of them "
    "calibrate, the others judge.",
)  # fmt: skip
@click.option(
    "--metric", metavar="FILE.py:FUNCTION",
    help="Function of outputs and of PyTorch's outputs, lists by call; more is better.",
)  # fmt: skip
@click.option(
    "--metric-drop", type=float, help="By how much the metric may be less than PyTorch's.",
)  # fmt: skip
@click.option(
    "--max-size", type=options.SIZE, help="Largest size of the files, such as 20MB.",
)  # fmt: skip
@viewing.options
@options.all_rows
@options.as_json
@options.workers
@options.lowering
def command(  # noqa: PLR0913 - an argument for each option
    source: str | None,
    output: Path | None,
    files: Sequence[str],
    weights: Sequence[tuple[str, float]],
    store: Path | None,
    no_store: bool,
    show: bool,
    point: int | None,
    precision: str | None,
    data: Path | None,
    metric: str | None,
    **lowering: Any,
) -> None:
    """Measure which plugins are fastest for SOURCE.

    Lowers SOURCE with every plugin alone, in several orders, with other options and with parts of
    the model moved, and measures each in processes of its own. Writes the fastest .pte within the
    tolerance if it is clearly faster than the untuned plan, else the untuned one; next to it a
    registry file from which etdev lower makes the same .pte, its lock, and the report.

    \b
    etdev tune net.py:model -o net.pte
    etdev tune net.py:model -o net.pte --budget 2m --tolerance 1e-2 --threads 2
    etdev tune net.py:model -o net.pte --inputs short.pt --inputs long.pt
    etdev tune net.py:model -o net.pte --target pi
    etdev tune net.py:model -o net.pte --runner cpp
    etdev tune -o net.pte --show

    With --precision it searches for the precision of each layer instead: first the errors of layers
    in PyTorch, then uniform schemes and mixed ones, each judged as a .pte on data that did not
    calibrate it. The cheapest within the limits is written; --point writes another one later.

    \b
    etdev tune net.py:model -o net.pte --precision auto --data calls.pt --max-error 1e-2
    etdev tune net.py:model -o net.pte --precision auto --data calls.pt --max-size 20MB
    etdev tune net.py:model -o net.pte --point 4
    etdev tune -o net.pte --show --html net.html

    Measurements are kept: stopped and started again, it continues.

    Exit codes: 0 when the files are written, 1 for an error, 2 for wrong usage, 130 for Ctrl-C.
    """  # noqa: D301 - click reads the escape
    passed = {name: lowering.pop(name) for name in _PASSED}
    if store and no_store:
        raise click.UsageError("give --store or --no-store, not both")
    viewing.check()
    if show and output:
        _print(Outputs(output).read_report(), output, source)
        return
    if source is None or output is None:
        raise click.UsageError("give SOURCE and -o FILE.pte, or --show and -o")
    if bool(precision) != bool(data):
        raise click.UsageError("give --precision and --data together")
    if metric and not precision:
        raise click.UsageError("--metric needs --precision")
    if precision and files:
        raise click.UsageError("--precision measures on --data; leave out --inputs")
    Outputs(output).check()
    options.check(source, **lowering)
    with working() as say:
        from etdev.app import sources
        from etdev_tune.precision.data import load_data
        from etdev_tune.tune import tune, write_point

        methods, own = sources.methods(source, say), options.arguments(**lowering)
        if point is not None:
            tuning = write_point(point, methods, output, say, **own)
            _print(tuning.report, output, source, tuning.plan)
            return
        tuning = tune(
            methods,
            path=output,
            precision=precision.split(",") if precision and precision != "auto" else precision,
            data=load_data(data) if data else None,
            metric=sources.function(metric) if metric else None,
            measured_on=_inputs(files),
            weights=dict(weights),
            store=False if no_store else store,
            **passed,
            **own,
            listener=say,
        )
    _print(tuning.report, output, source, tuning.plan)


def _print(found: Report, output: Path, source: str | None, plan: Plan | None = None) -> None:
    again = _again(source or "SOURCE", Outputs(output))
    parts: list[Sheet | str] = [
        _candidates(found),
        *_layers(found),
        *_lines(found, output),
        f"{output}: made again by {again}",
    ]
    report(lambda: TUNING.of(found), parts)
    viewing.write(lambda: _viewed(found, output, plan, again))


def _viewed(report: Report, output: Path, plan: Plan | None, again: str) -> viewing.Viewed:
    """Return the .pte with its plan, if that is known or in the file, and the candidates."""
    viewed = evolve(viewing.of_artifact(output), scatters=[candidates(report)])
    known = evolve(viewed, plan=plan, note="") if plan else viewed
    return evolve(known, note=f"{known.note} Made again by {again}".lstrip())


def _again(source: str, files: Outputs) -> str:
    """Return the command that makes the .pte again, with the same bytes."""
    options = ("--registry", files.registry, "--lock", files.lock, "--locked")
    return shlex.join(map(str, ("etdev", "lower", source, "-o", files.program, *options)))


def _candidates(report: Report) -> Sheet:
    columns = (*_COLUMNS[:5], *(_PREDICTED if report.sensitivities else ()), *_COLUMNS[5:])
    rows = (_row(number, trial, report) for number, trial in enumerate(report.trials))
    return Sheet(columns, tuple(rows), "candidates")


def _layers(report: Report) -> Iterator[Sheet]:
    """Yield the table of the layers: the chosen schemes, and the error of each scheme alone."""
    if not report.sensitivities:
        return
    chosen = next(t for t in report.trials if t.name == report.chosen)
    recipe = Recipe.of_options(chosen.options.get(PLUGIN, {}).get("layers", ()), ()).layers
    errors = {(one.layer, one.scheme): one.alone for one in report.sensitivities}
    layers, schemes = (dict.fromkeys(names) for names in zip(*errors, strict=True))
    order = sorted(layers, key=lambda name: -max(errors.get((name, s), 0.0) for s in schemes))
    rows = (
        (name, recipe.get(name, FLOAT), *(_number(errors.get((name, s)), ".1e") for s in schemes))
        for name in order
    )
    sheet = Sheet(("layer", "chosen", *schemes), tuple(rows), "errors of schemes in one layer")
    yield sheet if options.given("every") else sheet.first(_TOP, "; --all shows them")


def _inputs(files: Sequence[str]) -> dict[str, list[Any]] | None:
    """Read the files of inputs, each `[METHOD:]FILE`; return them by method."""
    from etdev.app import sources
    from etdev_tune.cases import Leaves

    inputs: dict[str, list[Any]] = {}
    for text in files:
        method, colon, file = text.partition(":")
        if not colon or Path(text).exists():
            method, file = "forward", text
        inputs.setdefault(method, []).append(Leaves(sources.load_inputs(file)))
    return inputs or None


def _row(number: int, trial: Trial, report: Report) -> tuple[str, ...]:
    marks = ["chosen" if trial.name == report.chosen else "", "front" if trial.front else ""]
    marks.append(f"same as {trial.same_as}" if trial.same_as else trial.detail)
    ratio = f"{trial.against_untuned}x" if trial.against_untuned else "-"
    sizes = (size(trial.size_bytes), size(trial.runtime_bytes))
    built = (*sizes, str(trial.delegates), str(trial.portable_nodes))
    foretold = [_number(trial.predicted_error, ".1e"), _number(trial.predicted_ms, ".3g")]
    predicted = (", ".join(foretold[: 1 + bool(trial.predicted_ms)]), _number(trial.metric, ".4g"))
    return (
        *(str(number), trial.name, str(trial.latency_ms or "-"), ratio),
        *(_number(trial.error, ".1e"), *(predicted if report.sensitivities else ())),
        *(built if trial.size_bytes else ("-", "-", "-", "-")),
        ", ".join(filter(None, marks)),
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _lines(report: Report, program: Path) -> Iterator[str]:
    """Yield the decision, the target, and what was compared."""
    target = ", ".join(filter(None, [report.target, report.fingerprint.get("cpu", "")]))
    yield f"{program}: {report.verdict}"
    yield (
        f"{program}: measured on {target} with {report.threads} threads; "
        f"{report.measured} measurements, {report.reused} reused, {report.seconds:.0f} s"
    )
    if report.calibrated:
        eager = "" if report.metric is None else f"; the metric of PyTorch is {report.metric:.4g}"
        calls = f"calibrated on {report.calibrated} calls, judged by {report.calls} others"
        yield f"{program}: {calls}{eager}"
    if not report.finished:
        yield f"{program}: the budget ended before the search did"
