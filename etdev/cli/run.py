"""`etdev run` runs a .pte in ExecuTorch's runtime, and compares it with PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve

from etdev.cli import lowerers, nodes, options, outputs, profiling, results, tables, viewing
from etdev.cli.group import Command
from etdev.cli.progress import Say, working
from etdev.errors import EtdevError
from etdev.schema.documents import RUN
from etdev.schema.report.sheet import Sheet

if TYPE_CHECKING:
    from etdev.edge.source import Method
    from etdev.runtime.bisect import Bisection, Suspect
    from etdev.runtime.compare import Difference
    from etdev.runtime.verify import Verifier
    from etdev.schema.profile import Profile

# The largest absolute error that --bisect accepts of a delegate, without --tolerance.
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
    help="With --check: first compare that many calls on new inputs, each with the state that the "
    "call before left, in a separate process.",
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
@click.option("--profile", is_flag=True, help="Show where the time of a run goes.")
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
    names plugins, modules and reasons if the .pte was lowered with --with-ledger.

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
    profiling.check(profile, trace, folder, views)
    if bisect:
        lowerers.check(check, **lowering)
    elif check:
        lowerers.check_source(check)
    model = decision = verification = measured = found = None
    differences: Sequence[Difference] = ()
    with working() as say:
        from etdev.cli import sources
        from etdev.runtime.child import CHILD
        from etdev.runtime.compare import compare, flat
        from etdev.runtime.inputs import load_inputs, random_inputs
        from etdev.runtime.run import run

        CHILD.start()
        if check:
            model = sources.method(check, method, say)
            if bisect:
                decision = lowerers.lowerer(say, **lowering).decide({method: model})
        if inputs:
            values = load_inputs(inputs)
        else:
            values = flat(model.example()) if model else random_inputs(program, method)
        if model and steps is not None:
            given = {method: [values]} if inputs else None
            settings = {"steps": steps, "edges": edges, "tolerance": tolerance, "data": data}
            verifier = _verifier(program, model, decided=decision, listener=say, **settings)
            verification = verifier.verify(given)
        say("run", str(program))
        result = run(program, values, method, repeat, data)
        if model:
            say("check", str(check))
            expected = flat(model.eager(values))
            differences = compare(result.outputs, expected)
        if profile or trace:
            say("profile", str(program))
            measured = _profiled(program, values, method, repeat, data)
            profiling.write(measured, program, trace, folder, views)
        if decision:
            from etdev.runtime.bisect import bisection

            most = _TOLERANCE if tolerance is None else tolerance
            delegates = bisection(program, decision, method, values)
            found = outputs.Bisected(_called(delegates, most, say), most, differences)
            if found.guilty:
                found = evolve(found, swapped=delegates.swapped(found.guilty, expected))
    fields = {
        "program": str(program),
        "method": method,
        **outputs.fields(result, differences),
        "verification": tables.verification_fields(verification),
    }
    lines: list[Sheet | str] = [
        *tables.verification(verification),
        *outputs.lines(result, differences),
    ]
    if measured and profile:
        fields["profile"] = profiling.fields(measured)
        lines += profiling.shown(measured)
    if found:
        fields["bisection"] = found.fields()
        lines += found.lines()
    if as_json:
        results.document(RUN.stamped(fields))
    else:
        results.show(lines, every)
    if found and found.guilty:
        click.get_current_context().exit(1)
    for index, difference in enumerate(differences):
        if tolerance is not None and steps is None and difference.exceeds(tolerance):
            what = f"max error {difference.max_error:.3g} of output {index} is above {tolerance:g}"
            raise EtdevError("check", what, "find the delegate with --bisect")


def _verifier(program: Path, model: Method, **settings: Any) -> Verifier:
    from etdev.edge.reference import Reference
    from etdev.quirks import QUIRKS
    from etdev.quirks.table import Table
    from etdev.registry import load
    from etdev.registry.selection import discover
    from etdev.runtime.verify import Verifier

    references = {model.name: Reference.of(model, model.export(Table(QUIRKS)))}
    plugins = [finding.plugin for finding in discover(load()) if finding.plugin]
    return Verifier(program, references, plugins=plugins, **settings)


def _profiled(
    program: Path, values: Sequence[Any], method: str, repeat: int, data: Path | None
) -> Profile:
    """Profile a method, with the plan that the .pte carries if it does."""
    from etdev.pte.embedded_plan import find_ledger
    from etdev.runtime.profile import profile

    return profile(program, values, method, repeat, data, find_ledger(program))


def _called(delegates: Bisection, tolerance: float, say: Say) -> list[Suspect]:
    """Call the delegates one by one, up to and with the first that departs from PyTorch."""
    suspects: list[Suspect] = []
    for suspect in delegates.suspects():
        suspects.append(suspect)
        say("bisect", f"{len(suspects)}/{len(delegates.plan.partitions)}")
        if suspect.departs(tolerance):
            break
    return suspects


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
