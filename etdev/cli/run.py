"""`etdev run`: a .pte in ExecuTorch's runtime, compared with PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etdev.cli import lines, lowerers, nodes, options, profiling, results, tables, viewing
from etdev.cli.bisection import Comparison, search
from etdev.cli.group import Command
from etdev.cli.progress import Say, working
from etdev.errors import EtdevError
from etdev.schema.documents import RUN

if TYPE_CHECKING:
    from etdev.edge.source import Method
    from etdev.runtime.decision import Decision
    from etdev.runtime.run import Run
    from etdev.runtime.verify import Verifier

# --bisect looks for a delegate whose absolute error is above this if there is no --tolerance.
_TOLERANCE = 1e-3


@click.command("run", cls=Command)
@options.program
@click.option("--inputs", type=options.FILE, help="Inputs written by torch.save.")
@click.option("--check", metavar="SOURCE", help="Compare with this model in PyTorch.")
@click.option(
    "--tolerance",
    type=float,
    help="With --check: fail above this absolute error; with --steps, above this error relative to "
    "the largest value.",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    help="With --check: first compare that many calls with fresh inputs, which carry the state on, "
    "in a process of its own.",
)
@options.edges
@click.option(
    "--bisect",
    is_flag=True,
    help="With --check: find the delegate that departs from PyTorch by more than the tolerance, "
    f"or by more than {_TOLERANCE:g}. Needs the --plugin, --device, --pin it was lowered with.",
)
@click.option("--method", default="forward", show_default=True, help="Method to run.")
@options.data
@click.option(
    "--repeat", type=click.IntRange(1), default=10, show_default=True, help="Timed calls."
)
@click.option("--profile", is_flag=True, help="Show what the time of a run is spent on.")
@click.option("--trace", type=options.FILE, help="Write a trace for Perfetto or Chrome there.")
@click.option("--node-data", "folder", type=options.FILE, help=f"{nodes.HELP}, and time.json.")
@viewing.options
@options.all_rows
@options.as_json
@options.lowering
def command(
    program: Path,
    inputs: Path | None,
    check: str | None,
    tolerance: float | None,
    steps: int | None,
    edges: bool,
    bisect: bool,
    method: str,
    data: Path | None,
    repeat: int,
    profile: bool,
    trace: Path | None,
    folder: Path | None,
    views: Mapping[str, Path],
    every: bool,
    as_json: bool,
    **lowering: Any,
) -> None:
    """Run a .pte in ExecuTorch's runtime.

    Prints the shape of each output, with --check its error against PyTorch, and the latency. Inputs
    come from --inputs, else from the model given with --check, else they are random. A profile
    knows plugins, modules and reasons of a .pte that was lowered with --with-ledger.

    \b
    etdev run net.pte
    etdev run net.pte --check net.py:model --tolerance 1e-4
    etdev run net.pte --check net.py:model --steps 5
    etdev run net.pte --check net.py:model --bisect --plugin cpu
    etdev run net.pte --profile --trace trace.json
    etdev run net.pte --profile --html net.html

    Exit codes: 0 for success; 1 for an error, an output above --tolerance, or a delegate that
    --bisect finds; 2 for wrong usage.
    """
    _check_usage(check, tolerance, steps, edges, bisect, lowering)
    wanted = profiling.Wanted(profile, trace, views, folder)
    wanted.check()
    if bisect:
        lowerers.check(check, **lowering)
    elif check:
        lowerers.check_source(check)
    verification = None
    with working(options.debugging()) as say:
        from etdev.cli import sources
        from etdev.runtime.child import CHILD
        from etdev.runtime.run import run

        CHILD.start()
        model = sources.method(check, method, say) if check else None
        values = _inputs(program, inputs, model, method)
        if model and steps is not None:
            decide = lowerers.lowerer(say, **lowering).decide if bisect else None
            decision = decide({method: model}) if decide else None
            verifier = _verifier(program, model, steps, edges, tolerance, data, decision, say)
            given = {method: [values]} if inputs else None
            verification = verifier.verify(given)
        say("run", str(program))
        result = run(program, values, method, repeat, data)
        if model:
            say("check", str(check))
        comparison = _compared(model, values, result) if model else None
        measured = None
        if wanted:
            say("profile", str(program))
            measured = profiling.measure(program, values, method, repeat, data)
            wanted.write(measured, program)
    differences = comparison.differences if comparison else ()
    fields = lines.run_fields(program, method, result, differences, verification)
    if measured and profile:
        fields["profile"] = profiling.fields(measured)
    if not as_json:
        for line in lines.run(result, differences, verification):
            results.line(line)
    if measured and profile and not as_json:
        results.show(profiling.report(measured, tables.limit(every)))
    guilty = False
    if bisect and comparison:
        most = _TOLERANCE if tolerance is None else tolerance
        found = search(program, comparison, most, lowering)
        guilty, fields["bisection"] = found.guilty is not None, found.fields()
        for line in () if as_json else found.lines():
            results.line(line)
    if as_json:
        results.document(RUN.stamped(fields))
    if guilty:
        click.get_current_context().exit(1)
    for index, difference in enumerate(differences):
        if tolerance is not None and steps is None and difference.exceeds(tolerance):
            error = f"max error {difference.max_error:.3g} of output {index}"
            raise EtdevError(
                "check", f"{error} is above {tolerance:g}", "find the delegate with --bisect"
            )


def _verifier(
    program: Path,
    model: Method,
    steps: int,
    edges: bool,
    tolerance: float | None,
    data: Path | None,
    decision: Decision | None,
    say: Say,
) -> Verifier:
    from etdev.edge.reference import Reference
    from etdev.quirks import QUIRKS
    from etdev.quirks.table import Table
    from etdev.registry import load
    from etdev.registry.selection import discover
    from etdev.runtime.verify import Verifier

    references = {model.name: Reference.of(model, model.export(Table(QUIRKS)))}
    plugins = [finding.plugin for finding in discover(load()) if finding.plugin]
    return Verifier(program, references, steps, edges, tolerance, data, decision, say, plugins)


def _check_usage(
    check: str | None,
    tolerance: float | None,
    steps: int | None,
    edges: bool,
    bisect: bool,
    lowering: Mapping[str, Any],
) -> None:
    given = {"--bisect": bisect, "--tolerance": tolerance is not None, "--steps": steps is not None}
    if check is None and any(given.values()):
        name = next(name for name, is_given in given.items() if is_given)
        raise click.UsageError(f"{name} needs --check SOURCE")
    if edges and steps is None:
        raise click.UsageError("--edges needs --steps")
    if not bisect and any(lowering.values()):
        raise click.UsageError("--plugin, --device, --pin, --strict and --registry need --bisect")


def _inputs(program: Path, file: Path | None, model: Method | None, method: str) -> list[Any]:
    from etdev.runtime.compare import flat
    from etdev.runtime.inputs import load_inputs, random_inputs

    if file is not None:
        return load_inputs(file)
    return flat(model.example()) if model else random_inputs(program, method)


def _compared(model: Method, inputs: Sequence[Any], result: Run) -> Comparison:
    from etdev.runtime.compare import compare, flat

    expected = flat(model.eager(inputs))
    return Comparison(model, inputs, expected, compare(result.outputs, expected))
