"""The command line. Only it prints, and only commands that need torch import it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, RenderableType

from etdev import command, progress
from etdev.errors import EtdevError, first_line

if TYPE_CHECKING:
    from etdev.lowerer import Lowerer
    from etdev.plan import Plan
    from etdev.source import Method

_SOURCE_HELP = """
SOURCE is file.pt2, package.module:function or file.py:function. The function takes no arguments
and returns (module, example inputs), or (module, example inputs, dynamic shapes), or an
ExportedProgram, or a dict of method name to one of these.
"""


@click.group(cls=command.Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="etdev", message="%(prog)s %(version)s")
@command.debug
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
@command.lowering_options
def lower(source: str, output: Path, **options: Any) -> None:
    """Lower SOURCE to a .pte: plan it, compile every partition, write the file."""
    from etdev import reader, report

    _check_output(output)
    with progress.working(command.debugging()) as say:
        lowerer = _lowerer(say, **options)
        lowered = lowerer.lower(_methods(source, say))
        lowered.save(output)
    for method in lowered.plan.methods:
        owners = ", ".join(f"{name} {count}" for name, count in method.ledger.owned().items())
        delegates = len(method.partitions)
        print(f"{output}: method {method.method}, {delegates} delegates, nodes: {owners}")
    print(f"{output}: {report.size(reader.read(output).size_bytes)}")
    progress.console().print(report.stages_report(lowered.stages.seconds))


@main.command(epilog=_SOURCE_HELP)
@click.argument("source")
@click.option("--why", metavar="NODE", help="Show only what every plugin said about a node.")
@command.json
@command.lowering_options
def plan(source: str, why: str | None, as_json: bool, **options: Any) -> None:
    """Show who would get which nodes of SOURCE, where, and why; compiles nothing."""
    from etdev import report

    with progress.working(command.debugging()) as say:
        decided = _lowerer(say, **options).plan(_methods(source, say))
    if why:
        _show(report.why_report(decided, why))
    elif as_json:
        print(decided.to_json())
    else:
        _show(report.plan_report(decided))


@main.command()
@click.argument("program", type=click.Path(path_type=Path))
@click.option("--inputs", type=click.Path(path_type=Path), help="Inputs written by torch.save.")
@click.option("--check", metavar="SOURCE", help="Compare with this model in PyTorch.")
@click.option("--tolerance", type=float, help="With --check: fail above this absolute error.")
@click.option("--method", default="forward", show_default=True, help="Method to run.")
@click.option("--data", type=click.Path(path_type=Path), help="The .ptd file; else one beside it.")
@click.option(
    "--repeat", type=click.IntRange(1), default=10, show_default=True, help="Timed calls."
)
@command.debug
def run(
    program: Path,
    inputs: Path | None,
    check: str | None,
    tolerance: float | None,
    method: str,
    data: Path | None,
    repeat: int,
) -> None:
    """Run a .pte in ExecuTorch's runtime: outputs' shapes, latency, error against PyTorch.

    Inputs come from --inputs, else from the model given with --check, else they are random.
    """
    if tolerance is not None and check is None:
        raise click.UsageError("--tolerance needs --check SOURCE")
    with progress.working(command.debugging()) as say:
        from etdev import runner

        model = _one_method(check, method, say) if check else None
        values = _inputs(program, inputs, model, method)
        say("run", str(program))
        done = runner.run(program, values, method, repeat, data)
        say("check", check or "")
        errors = runner.compare(done.outputs, runner.flat(model.eager(values))) if model else []
    for index, output in enumerate(done.outputs):
        shape = tuple(output.shape) if hasattr(output, "shape") else output
        line = f"output {index}: {getattr(output, 'dtype', type(output).__name__)} {shape}"
        if errors:
            line += f", max error {errors[index].max_error:.3g}"
            line += f" (largest value {errors[index].max_value:.3g})"
        print(line.replace("torch.", ""))
    print(
        f"latency: {done.median_ms:.2f} ms median of {repeat}, fastest {min(done.latency_ms):.2f}"
    )
    for index, error in enumerate(errors):
        # Each by itself, and negated: max() loses a nan, and nan is above nothing.
        if tolerance is not None and not error.max_error <= tolerance:
            what = f"max error {error.max_error:.3g} of output {index} is above {tolerance:g}"
            raise EtdevError("check", what, "see etdev plan")


@main.command()
@click.argument("program", type=click.Path(path_type=Path))
@command.json
@command.debug
def inspect(program: Path, as_json: bool) -> None:
    """Show what a .pte holds, from the file alone: delegates, devices, memory, constants."""
    with progress.working(command.debugging()) as say:
        say("read", str(program))
        from etdev import reader, report

        facts = reader.read(program)
    if as_json:
        print(json.dumps(facts.to_dict(), indent=2))
    else:
        _show(report.artifact_report(facts))


@main.command()
@click.argument("program", type=click.Path(path_type=Path))
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="From plan --json.")
@click.option("--target", default="cpu", show_default=True, help="Its devices, as cpu,cuda:0.")
@click.option("--data", type=click.Path(path_type=Path), help="The .ptd file; else one beside it.")
@command.registry
@command.debug
def check(
    program: Path, plan_file: Path | None, target: str, data: Path | None, registry: Path | None
) -> None:
    """List what of a .pte would not load or not run on a target; exit code 1 if there is anything.

    Looks for backends and kernels missing in this machine's runtime, devices the target doesn't
    have, labels that the payload contradicts, a missing .ptd, and differences from a plan.
    """
    from etdev.device import Device

    targets = [Device.parse(text) for text in target.split(",")]
    with progress.working(command.debugging()) as say:
        say("check", str(program))
        from etdev import check as checks
        from etdev import plugins
        from etdev import registry as registries

        table = registries.load(registry)
        found = [finding.plugin for finding in plugins.discover(table) if finding.plugin]
        problems = checks.check(program, targets, _read_plan(plan_file), found, data)
    for problem in problems:
        print(f"{program}: {problem}")
    if problems:
        click.get_current_context().exit(1)
    print(f"{program}: loads and runs on {target}")


@main.command("plugins")
@command.json
@command.registry
@command.debug
def plugins_(as_json: bool, registry: Path | None) -> None:
    """List plugins in claim order: distribution, status, devices, hooks. Doesn't import torch."""
    from etdev import plugins, report
    from etdev import registry as registries

    found = plugins.discover(registries.load(registry))
    if as_json:
        print(json.dumps([report.finding_row(finding) for finding in found], indent=2))
    elif found:
        _show(report.plugins_report(found))
    else:
        progress.console().print("no plugin is installed; pip install etdev-cpu")


def _read_plan(file: Path | None) -> Plan | None:
    if file is None:
        return None
    from etdev.plan import Plan

    try:
        return Plan.from_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise EtdevError(str(file), f"can't be read ({error.strerror})", "give a file") from error
    except Exception as error:
        what = f"is no plan ({first_line(error)})"
        raise EtdevError(str(file), what, "write it with etdev plan --json") from error


def _lowerer(
    say: Callable[[str, str], None],
    plugins: Sequence[str],
    devices: Sequence[str],
    strict: bool | None,
    registry: Path | None,
) -> Lowerer:
    from etdev.lowerer import Lowerer

    return Lowerer(
        list(plugins) or None,
        registry=registry,
        devices=command.devices_of(devices),
        strict=strict or None,
        listener=say,
    )


def _methods(source: str, say: Callable[[str, str], None]) -> dict[str, Method]:
    say("model", source)
    from etdev import reference

    return reference.load(source)


def _one_method(source: str, name: str, say: Callable[[str, str], None]) -> Method:
    methods = _methods(source, say)
    if name not in methods:
        raise EtdevError(source, f"has no method {name!r}", f"it has {', '.join(methods)}")
    return methods[name]


def _inputs(program: Path, file: Path | None, model: Method | None, method: str) -> list[Any]:
    from etdev import runner

    if file is not None:
        return runner.load_inputs(file)
    if model is not None:
        return runner.flat(model.example())
    return runner.random_inputs(program, method)


def _check_output(path: Path) -> None:
    """Complain before the long work, not after it."""
    if path.suffix != ".pte":
        raise EtdevError(str(path), "does not end in .pte", "name it model.pte")
    if not path.parent.is_dir():
        raise EtdevError(str(path), f"there is no folder {str(path.parent)!r}", "create it first")
    if path.is_dir():
        raise EtdevError(str(path), "is a folder", "choose another path")
    try:
        # Tried, not asked: os.access tells root that everything can be written.
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise EtdevError(
            str(path), f"can't be written ({error.strerror})", "choose another path"
        ) from error


def _show(what: RenderableType) -> None:
    # Piped, a table is as wide as it needs to be: nobody wants cells folded at 80 columns.
    Console(width=None if sys.stdout.isatty() else 160).print(what, markup=False, highlight=False)
