"""The command line. Only it prints, and only commands that need torch import it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, RenderableType

from etdev.cli import group, progress
from etdev.cli import options as arguments
from etdev.errors import EtdevError

if TYPE_CHECKING:
    from etdev.edge.source import Method
    from etdev.runtime.run import Difference

# Above this absolute error a delegate departs from PyTorch, if nobody says otherwise.
_TOLERANCE = 1e-3
_SOURCE_HELP = """
SOURCE is file.pt2, package.module:function or file.py:function. The function takes no arguments
and returns (module, example inputs), or (module, example inputs, dynamic shapes), or an
ExportedProgram, or a dict of method name to one of these.
"""


@click.group(cls=group.Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="etdev", message="%(prog)s %(version)s")
@group.debug
def main() -> None:
    """Lower PyTorch models to ExecuTorch .pte files with whatever backends are installed.

    \b
    etdev plugins                            who is installed, in claim order
    etdev plan net.py:model                  who would get what, and why; compiles nothing
    etdev lower net.py:model -o net.pte      compile and write it
    etdev run net.pte --check net.py:model   run it and compare with PyTorch
    etdev inspect net.pte                    what a .pte holds
    etdev check net.pte --target cpu,cuda:0  what would not load or not run there

    Results go to stdout, all else to stderr. Exit codes: 0, 1 for an error, 2 for wrong usage.
    """


@main.command(epilog=_SOURCE_HELP)
@click.argument("source")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The .pte.")
@group.lowering_options
def lower(source: str, output: Path, **options: Any) -> None:
    """Lower SOURCE to a .pte: plan it, compile every partition, write the file."""
    from etdev.cli import tables
    from etdev.pte import read

    arguments.check_output(output)
    with progress.working(group.debugging()) as say:
        lowerer = arguments.lowerer(say, **options)
        lowered = lowerer.lower(arguments.methods(source, say))
        lowered.save(output)
    for method in lowered.plan.methods:
        owners = ", ".join(f"{name} {count}" for name, count in method.ledger.owned().items())
        delegates = len(method.partitions)
        print(f"{output}: method {method.method}, {delegates} delegates, nodes: {owners}")
    print(f"{output}: {tables.size(read.read(output).size_bytes)}")
    progress.console().print(tables.stages_report(lowered.stages.seconds))


@main.command(epilog=_SOURCE_HELP)
@click.argument("source")
@click.option("--why", metavar="NODE", help="Show only what every plugin said about a node.")
@group.json
@group.lowering_options
def plan(source: str, why: str | None, as_json: bool, **options: Any) -> None:
    """Show who would get which nodes of SOURCE, where, and why; compiles nothing."""
    from etdev.cli import tables

    with progress.working(group.debugging()) as say:
        decided = arguments.lowerer(say, **options).plan(arguments.methods(source, say))
    if why and as_json:
        print(json.dumps(tables.why_rows(decided, why), indent=2))
    elif why:
        _show(tables.why_report(decided, why))
    elif as_json:
        print(decided.to_json())
    else:
        _show(tables.plan_report(decided))


@main.command()
@click.argument("program", type=click.Path(path_type=Path))
@click.option("--inputs", type=click.Path(path_type=Path), help="Inputs written by torch.save.")
@click.option("--check", metavar="SOURCE", help="Compare with this model in PyTorch.")
@click.option("--tolerance", type=float, help="With --check: fail above this absolute error.")
@click.option(
    "--bisect",
    is_flag=True,
    help="With --check: find the delegate that departs from PyTorch by more than the tolerance, "
    f"or by more than {_TOLERANCE:g}. Needs the --plugin, --device, --pin it was lowered with.",
)
@click.option("--method", default="forward", show_default=True, help="Method to run.")
@click.option("--data", type=click.Path(path_type=Path), help="The .ptd file; else one beside it.")
@click.option(
    "--repeat", type=click.IntRange(1), default=10, show_default=True, help="Timed calls."
)
@group.lowering_options
def run(
    program: Path,
    inputs: Path | None,
    check: str | None,
    tolerance: float | None,
    bisect: bool,
    method: str,
    data: Path | None,
    repeat: int,
    **options: Any,
) -> None:
    """Run a .pte in ExecuTorch's runtime: outputs' shapes, latency, error against PyTorch.

    Inputs come from --inputs, else from the model given with --check, else they are random.
    """
    _check_run(check, tolerance, bisect, options)
    with progress.working(group.debugging()) as say:
        from etdev.cli import outcome
        from etdev.runtime import run

        model = arguments.one_method(check, method, say) if check else None
        values = arguments.inputs(program, inputs, model, method)
        say("run", str(program))
        done = run.run(program, values, method, repeat, data)
        say("check", check or "")
        expected = run.flat(model.eager(values)) if model else []
        errors = run.compare(done.outputs, expected) if model else []
    for line in outcome.run_lines(done, errors):
        print(line)
    if bisect and model:
        least = _TOLERANCE if tolerance is None else tolerance
        _bisect(program, model, values, expected, errors, least, options)
    for index, error in enumerate(errors):
        # Each by itself, and negated: max() loses a nan, and nan is above nothing.
        if tolerance is not None and not error.max_error <= tolerance:
            what = f"max error {error.max_error:.3g} of output {index} is above {tolerance:g}"
            raise EtdevError("check", what, "find the delegate with --bisect")


def _check_run(
    check: str | None, tolerance: float | None, bisect: bool, options: Mapping[str, Any]
) -> None:
    if check is None and (tolerance is not None or bisect):
        name = "--bisect" if bisect else "--tolerance"
        raise click.UsageError(f"{name} needs --check SOURCE")
    if not bisect and any(options.values()):
        raise click.UsageError("--plugin, --device, --pin, --strict and --registry need --bisect")


def _bisect(
    program: Path,
    model: Method,
    values: Sequence[Any],
    expected: Sequence[Any],
    errors: Sequence[Difference],
    tolerance: float,
    options: Mapping[str, Any],
) -> None:
    """Call the delegates one by one, and print the first that departs from PyTorch."""
    from etdev.cli import outcome
    from etdev.runtime import bisect

    with progress.working(group.debugging()) as say:
        decision = arguments.lowerer(say, **options).decide({model.name: model})
        delegates = bisect.bisection(program, decision, model.name, values)
        suspects = []
        for suspect in delegates.suspects():
            suspects.append(suspect)
            say("bisect", f"{len(suspects)}/{len(delegates.plan.partitions)}")
            if suspect.departs(tolerance):
                break
        guilty = suspects[-1] if suspects and suspects[-1].departs(tolerance) else None
        swapped = delegates.swapped(guilty, expected) if guilty else None
    for line in outcome.bisection_lines(suspects, guilty, tolerance, errors, swapped):
        print(line)
    if guilty:
        click.get_current_context().exit(1)


@main.command()
@click.argument("program", type=click.Path(path_type=Path))
@group.json
@group.debug
def inspect(program: Path, as_json: bool) -> None:
    """Show what a .pte holds, from the file alone: delegates, devices, memory, constants."""
    with progress.working(group.debugging()) as say:
        say("read", str(program))
        from etdev.cli import tables
        from etdev.pte import read

        facts = read.read(program)
    if as_json:
        print(json.dumps(facts.to_dict(), indent=2))
    else:
        _show(tables.artifact_report(facts))


@main.command()
@click.argument("program", type=click.Path(path_type=Path))
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="From plan --json.")
@click.option("--target", default="cpu", show_default=True, help="Its devices, as cpu,cuda:0.")
@click.option("--data", type=click.Path(path_type=Path), help="The .ptd file; else one beside it.")
@group.registry
@group.debug
def check(
    program: Path, plan_file: Path | None, target: str, data: Path | None, registry: Path | None
) -> None:
    """List what of a .pte would not load or not run on a target; exit code 1 if there is anything.

    Looks for backends and kernels missing in this machine's runtime, devices the target doesn't
    have, labels that the payload contradicts, a missing .ptd, and differences from a plan.
    """
    from etdev.schema.device import Device

    targets = [Device.parse(text) for text in target.split(",")]
    with progress.working(group.debugging()) as say:
        say("check", str(program))
        from etdev import registry as registries
        from etdev.registry import selection
        from etdev.runtime import check as checks

        table = registries.load(registry)
        found = [finding.plugin for finding in selection.discover(table) if finding.plugin]
        problems = checks.check(program, targets, arguments.read_plan(plan_file), found, data)
    for problem in problems:
        print(f"{program}: {problem}")
    if problems:
        click.get_current_context().exit(1)
    print(f"{program}: loads and runs on {target}")


@main.command("plugins")
@group.json
@group.registry
@group.debug
def plugins_(as_json: bool, registry: Path | None) -> None:
    """List plugins in claim order: distribution, status, devices, hooks.

    Imports torch only where the registry names an ExecuTorch Partitioner.
    """
    from etdev import registry as registries
    from etdev.cli import tables
    from etdev.registry import selection

    found = selection.discover(registries.load(registry))
    if as_json:
        print(json.dumps([tables.finding_row(finding) for finding in found], indent=2))
    elif found:
        _show(tables.plugins_report(found))
    else:
        progress.console().print("no plugin is installed; pip install etdev-cpu")


def _show(what: RenderableType) -> None:
    # Piped, a table is as wide as it needs to be: nobody wants cells folded at 80 columns.
    Console(width=None if sys.stdout.isatty() else 160).print(what, markup=False, highlight=False)
