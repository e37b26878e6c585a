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
from etdev_tune.report import TUNING, Estimate, Report, Trial
from etdev_tune.store import Store, default_folder

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600}


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
    "--inputs", "files", multiple=True, metavar="[METHOD:]FILE[@WEIGHT]",
    help="Measure on inputs that torch.save wrote; repeat it for several, with weights.",
)  # fmt: skip
@click.option(
    "--objective", type=click.Choice(["latency", "size", "memory"]), default="latency",
    show_default=True, help="The cost to reduce.",
)  # fmt: skip
@click.option(
    "--on", "runner", default="local", show_default=True, metavar="RUNNER",
    help="Where to measure: local, ssh:host, adb, or a command template.",
)  # fmt: skip
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True,
    help="Threads of the runtime and its delegates.",
)  # fmt: skip
@click.option(
    "--store",
    type=options.FILE,
    help="Folder of earlier measurements; ETDEV_MEASUREMENTS names it, too.",
)
@click.option("--no-store", is_flag=True, help="Measure everything, and keep nothing.")
@click.option(
    "--show", is_flag=True,
    help="Measure nothing: show the tuning of -o, or without -o the store's contents.",
)  # fmt: skip
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
    runner: str,
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
    etdev tune net.py:model -o net.pte --inputs short.pt@3 --inputs long.pt
    etdev tune net.py:model -o net.pte --on ssh:board
    etdev tune -o net.pte --show

    Measurements are kept: stopped and started again, it continues.

    Exit codes: 0 when the files are written, 1 for an error, 2 for wrong usage, 130 for Ctrl-C.
    """  # noqa: D301 - click reads the escape
    if store and no_store:
        raise click.UsageError("give --store or --no-store, not both")
    if show:
        _show(output, store)
        return
    if source is None or output is None:
        raise click.UsageError("give SOURCE and -o FILE.pte, or --show")
    lowerers.check(source, **lowering)
    with working() as say:
        from etdev.cli import sources
        from etdev_tune.tune import tune

        tuning = tune(
            sources.methods(source, say),
            path=output,
            **_measured(files),
            budget_s=budget_s,
            tolerance=tolerance,
            objective=objective,
            on=runner,
            policy=threads,
            store=False if no_store else store,
            **lowerers.arguments(**lowering),
            listener=say,
        )
    _print(tuning.report, output)


def _show(output: Path | None, store: Path | None) -> None:
    if output is not None:
        _print(Outputs(output).read_report(), output)
        return
    if options.given("as_json"):
        raise click.UsageError("--show --json needs -o")
    for line in _kept_lines(Store(store or default_folder())):
        results.line(line)


def _print(report: Report, output: Path) -> None:
    results.report(
        lambda: TUNING.stamped(CONVERTER.unstructure(report)),
        [*_sheets(report), *_lines(report, Outputs(output))],
    )


def _split(text: str) -> tuple[str, Path, float]:
    """Split `[METHOD:]FILE[@WEIGHT]` into method, file and weight."""
    rest, at, weight = text.rpartition("@")
    if not at or not re.fullmatch(r"\d+(\.\d+)?", weight):
        rest, weight = text, "1"
    method, colon, file = rest.partition(":")
    if not colon or Path(rest).exists():
        method, file = "forward", rest
    return method, Path(file), float(weight)


def _measured(files: Sequence[str]) -> dict[str, Any]:
    """Read the files of inputs; return them and their weights, both by method."""
    from etdev.runtime.inputs import load_inputs
    from etdev_tune.cases import Leaves

    inputs: dict[str, list[Any]] = {}
    weights: dict[str, list[float]] = {}
    for method, file, weight in map(_split, files):
        inputs.setdefault(method, []).append(Leaves(load_inputs(file)))
        weights.setdefault(method, []).append(weight)
    return {"measured_on": inputs or None, "weights": weights or None}


def _sheets(report: Report) -> list[Sheet]:
    """Return the candidates and the moves of a tuning as tables."""
    columns = ("candidate", "ms", "vs untuned", "error", "size", "delegates", "portable", "")
    sheets = [Sheet(columns, [_row(t, report.chosen) for t in report.trials], "candidates")]
    if report.moves:
        moves = [(m.name, _ratio(m.measured), m.why) for m in report.moves]
        sheets.append(Sheet(("move", "measured", "why"), moves, "moves"))
    return sheets


def _row(trial: Trial, chosen: str) -> tuple[str, ...]:
    marks = [trial.detail or (f"same as {trial.same_as}" if trial.same_as else "")]
    marks = ["chosen" if trial.name == chosen else "", "front" if trial.front else "", *marks]
    error = "-" if trial.error is None else f"{trial.error:.1e}"
    counts = (str(trial.delegates), str(trial.portable_nodes)) if trial.size_bytes else ("-", "-")
    bytes_of = size(trial.size_bytes) if trial.size_bytes else "-"
    latency = str(trial.latency_ms or "-")
    ratio = _ratio(trial.against_untuned)
    return (trial.name, latency, ratio, error, bytes_of, *counts, ", ".join(filter(None, marks)))


def _ratio(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate}x"


def _lines(report: Report, files: Outputs) -> Iterator[str]:
    """Yield the decision, the target and the files."""
    target = ", ".join(filter(None, [report.target, report.fingerprint.get("cpu", "")]))
    yield f"{files.program}: {report.verdict}"
    yield (
        f"{files.program}: measured on {target} with {report.threads} threads; "
        f"{report.measured} measurements, {report.reused} reused, {report.seconds:.0f} s"
    )
    yield from (f"{files.program}: {note}" for note in report.notes)
    again = f"made again by etdev lower --registry {files.registry}; lock {files.lock}"
    yield f"{files.program}: {again}"


def _kept_lines(store: Store) -> Iterator[str]:
    """Yield the number of measurements in the store, by target."""
    programs: dict[str, list[str]] = {}
    for key in store.kept():
        target = key["target"]
        name = ", ".join(filter(None, (target.get("cpu", ""), target.get("executorch", ""))))
        programs.setdefault(name, []).append(key["program"])
    for name, own in sorted(programs.items()):
        yield f"{store.folder}: {len(own)} measurements of {len(set(own))} programs on {name}"
    if not programs:
        yield f"{store.folder}: no measurements"
