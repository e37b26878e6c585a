"""`etdev tune` finds the fastest composition of the installed plugins by measuring."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from etdev.cli import lowerers, options, results
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.schema.report.sheet import Sheet, size
from etdev.schema.structuring import CONVERTER
from etdev_tune.outputs import Outputs
from etdev_tune.report import TUNING, Report, Trial

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_COLUMNS = (
    "candidate",
    "ms",
    "vs untuned",
    "error",
    "size",
    "libraries",
    "delegates",
    "portable",
    "",
)


def _duration(_: click.Context, __: click.Parameter, text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if not match or not float(match[1]):
        raise click.BadParameter(f"{text!r} is not a duration; write 10m or 90s")
    return float(match[1]) * _SECONDS[match[2] or "s"]


@click.command("tune", cls=Command, epilog=options.SOURCE)
@click.argument("source", required=False)
@click.option("-o", "--output", type=options.FILE, help="The .pte to write.")
@click.option(
    "--budget", "budget_s", default="10m", show_default=True, callback=_duration, metavar="TIME",
    help="Time for the search, such as 90s or 10m.",
)  # fmt: skip
@click.option(
    "--tolerance", type=float, default=1e-3, show_default=True,
    help="Largest error against PyTorch, relative to the largest value of an output.",
)  # fmt: skip
@click.option(
    "--inputs", "files", multiple=True, metavar="[METHOD:]FILE",
    help="Measure on inputs that torch.save wrote; repeat it for several.",
)  # fmt: skip
@click.option(
    "--objective", type=click.Choice(["latency", "size", "memory"]), default="latency",
    show_default=True, help="The cost to reduce; size counts ExecuTorch's libraries, too.",
)  # fmt: skip
@click.option(
    "--on", default="local", show_default=True, metavar="TARGET",
    help="Where to measure: local, ssh:host, adb, or a command template.",
)  # fmt: skip
@options.runner
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True,
    help="Threads of the runtime and its delegates.",
)  # fmt: skip
@click.option(
    "--store",
    type=options.FILE,
    help="Folder of measurements to reuse; by default ETDEV_MEASUREMENTS, else the user's cache.",
)
@click.option("--no-store", is_flag=True, help="Measure everything, and keep nothing.")
@click.option("--show", is_flag=True, help="Measure nothing: show the tuning of -o.")
@options.all_rows
@options.as_json
@options.workers
@options.lowering
def command(  # noqa: PLR0913 - an argument for each option
    source: str | None,
    output: Path | None,
    budget_s: float,
    tolerance: float,
    files: Sequence[str],
    objective: str,
    on: str,
    runner: str | None,
    threads: int,
    store: Path | None,
    no_store: bool,
    show: bool,
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
    etdev tune net.py:model -o net.pte --on ssh:board
    etdev tune net.py:model -o net.pte --runner cpp
    etdev tune -o net.pte --show

    Measurements are kept: stopped and started again, it continues.

    Exit codes: 0 when the files are written, 1 for an error, 2 for wrong usage, 130 for Ctrl-C.
    """  # noqa: D301 - click reads the escape
    if store and no_store:
        raise click.UsageError("give --store or --no-store, not both")
    if show and output:
        _print(Outputs(output).read_report(), output)
        return
    if source is None or output is None:
        raise click.UsageError("give SOURCE and -o FILE.pte, or --show and -o")
    lowerers.check(source, **lowering)
    with working() as say:
        from etdev.cli import sources
        from etdev_tune.tune import tune

        tuning = tune(
            sources.methods(source, say),
            path=output,
            measured_on=_inputs(files),
            budget_s=budget_s,
            tolerance=tolerance,
            objective=objective,
            on=on,
            runner=runner,
            policy=threads,
            store=False if no_store else store,
            **lowerers.arguments(**lowering),
            listener=say,
        )
    _print(tuning.report, output)


def _print(report: Report, output: Path) -> None:
    results.report(
        lambda: TUNING.stamped(CONVERTER.unstructure(report)),
        [
            Sheet(_COLUMNS, [_row(t, report.chosen) for t in report.trials], "candidates"),
            *_lines(report, Outputs(output)),
        ],
    )


def _inputs(files: Sequence[str]) -> dict[str, list[Any]] | None:
    """Read the files of inputs, each `[METHOD:]FILE`; return them by method."""
    from etdev.runtime.inputs import load_inputs
    from etdev_tune.cases import Leaves

    inputs: dict[str, list[Any]] = {}
    for text in files:
        method, colon, file = text.partition(":")
        if not colon or Path(text).exists():
            method, file = "forward", text
        inputs.setdefault(method, []).append(Leaves(load_inputs(file)))
    return inputs or None


def _row(trial: Trial, chosen: str) -> tuple[str, ...]:
    marks = ["chosen" if trial.name == chosen else "", "front" if trial.front else ""]
    marks.append(f"same as {trial.same_as}" if trial.same_as else trial.detail)
    error = "-" if trial.error is None else f"{trial.error:.1e}"
    ratio = f"{trial.against_untuned}x" if trial.against_untuned else "-"
    sizes = (size(trial.size_bytes), size(trial.runtime_bytes))
    built = (*sizes, str(trial.delegates), str(trial.portable_nodes))
    return (
        *(trial.name, str(trial.latency_ms or "-"), ratio, error),
        *(built if trial.size_bytes else ("-", "-", "-", "-")),
        ", ".join(filter(None, marks)),
    )


def _lines(report: Report, files: Outputs) -> Iterator[str]:
    """Yield the decision, the target and the files."""
    target = ", ".join(filter(None, [report.target, report.fingerprint.get("cpu", "")]))
    disturbed = f", {report.disturbed} disturbed" if report.disturbed else ""
    yield f"{files.program}: {report.verdict}"
    yield (
        f"{files.program}: measured on {target} with {report.threads} threads; "
        f"{report.measured} measurements{disturbed}, {report.reused} reused, {report.seconds:.0f} s"
    )
    if not report.finished:
        yield f"{files.program}: the budget ended before the search did"
    again = f"made again by etdev lower --registry {files.registry}; lock {files.lock}"
    yield f"{files.program}: {again}"
