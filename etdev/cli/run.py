"""`etdev run` runs a .pte in ExecuTorch's runtime, and compares it with PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from etdev.cli import lowerers, options, results, source_names, tables, viewing
from etdev.cli.group import Command
from etdev.cli.progress import Display, working
from etdev.errors import EtdevError, VerifyError
from etdev.report import presenters
from etdev.report.sheet import Sheet
from etdev.schema.documents import RUN
from etdev.schema.structuring import CONVERTER

if TYPE_CHECKING:
    from etdev.runtime.worker import CallResult
    from etdev.schema.method import Method
    from etdev.schema.profile import Profile
    from etdev.schema.target import Target
    from etdev.verify.output_error import OutputError
    from etdev.verify.verification import Verification
    from etdev.verify.verifier import Verifier


@click.command("run", cls=Command)
@options.program
@click.option(
    "--inputs", type=options.FILE, callback=options.existing, help="Inputs written by torch.save."
)
@click.option(
    "--check",
    metavar="SOURCE",
    help="Compare with this model in PyTorch, at its example inputs or --inputs, in other sizes, "
    "and at NaN and infinities. etdev lower and --bisect draw inputs far from these, too.",
)
@click.option(
    "--tolerance",
    type=float,
    help="With --check: the accepted error, relative to the largest value of an output; by default "
    "that of etdev lower.",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    help="With --check: compare this many calls, 1 if left out. Each has new inputs and continues "
    "with the state of the call before.",
)
@click.option(
    "--bisect",
    is_flag=True,
    help="With --check: name the delegate or kernel that departs from PyTorch. Needs the --plugin, "
    "--device, --pin it was lowered with.",
)
@click.option("--method", default="forward", show_default=True, help="Method to run.")
@options.data
@options.runner
@options.target
@click.option(
    "--repeat", type=click.IntRange(1), default=10, show_default=True, help="Timed calls."
)
@click.option("--profile", is_flag=True, help="Show where the time of a run goes.")
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
    bisect: bool,
    method: str,
    data: Path | None,
    runner: str | None,
    target: Target | None,
    repeat: int,
    profile: bool,
    **lowering: Any,
) -> None:
    """Run a .pte in ExecuTorch's runtime.

    Prints the shape of each output, with --check its error against PyTorch, and the latency. Inputs
    come from --inputs, else from the model given with --check, else they are random. A profile
    names plugins, modules and reasons unless the .pte was lowered with --no-ledger.

    \b
    etdev run net.pte
    etdev run net.pte --check net.py:model --steps 5
    etdev run net.pte --check net.py:model --bisect --plugin cpu
    etdev run net.pte --profile --html net.html
    etdev run net.pte --target pi --check net.py:model

    Exit codes: 0 for success, 1 for an error or an output that departs from PyTorch, 2 for wrong
    usage.
    """
    needing = {"--bisect": bisect, "--tolerance": tolerance is not None, "--steps": steps}
    needless = [name for name, is_given in needing.items() if is_given and check is None]
    if needless:
        raise click.UsageError(f"{needless[0]} needs --check SOURCE")
    if not bisect and any(lowering.values()):
        raise click.UsageError("--plugin, --device, --pin, --strict and --registry need --bisect")
    if not profile and options.given("views"):
        raise click.UsageError("--html and --view need --profile")
    viewing.check()
    if bisect:
        lowerers.check(check, **lowering)
    elif check:
        source_names.check_source(check)
    from etdev.pte.read import read

    # What is wrong with the file is said at once.
    artifact = read(program)
    with working(runs=True, executorch=bool(check or profile)) as say:
        from etdev.registry import load
        from etdev.registry.selection import discover
        from etdev.runtime.run import run
        from etdev.runtime.runners import runner_of

        plugins = [finding.plugin for finding in discover(load()) if finding.plugin]
        model = verifier = measured = None
        if check:
            methods = _methods(check, method, say)
            model = methods[method]
            lowerer = lowerers.lowerer(say, **lowering) if bisect else None
            decided = lowerer.decide({method: model}) if lowerer else None
            asked: Any = {"method": method, "steps": steps or 1, "tolerance": tolerance}
            asked |= {"data": data, "plugins": plugins, "runner": runner, "target": target}
            verifier = _verifier(program, methods, decided, listener=say, **asked)
        values = _inputs(inputs, program, method, model)
        say("run", str(program))
        chosen = runner_of(artifact, plugins, runner, target)
        result = run(program, values, method, repeat, data, chosen)
        given = values if inputs else None
        compared = _compared(verifier, method, result, given) if verifier else Compared()
        if profile:
            say("profile", str(program))
            measured = _profile(program, values, method, repeat, data, chosen)
            viewing.write(lambda: viewing.of_artifact(program, measured))
    emulated = getattr(chosen, "emulated", False)
    lines = [
        *tables.run_lines(result, compared.differences, timed=not emulated),
        *(compared.verification.lines() if compared.verification else ()),
        *(_profile_lines(measured) if measured else ()),
    ]
    known = {"program": str(program), "method": method}
    results.report(lambda: RUN.stamped(known | _fields(result, compared, measured)), lines)
    if compared.failure:
        # The outputs are shown first.
        raise compared.failure


@frozen
class Compared:
    """The outputs of a run beside PyTorch's.

    Args:
        differences: How far each output is from PyTorch's.
        verification: What `--check` verified; None without one, or where it failed.
        failure: Why it failed.
    """

    differences: Sequence[OutputError] = ()
    verification: Verification | None = None
    failure: VerifyError | None = None


def _methods(source: str, method: str, say: Display) -> dict[str, Method]:
    from etdev.cli import sources

    methods = sources.methods(source, say)
    if method not in methods:
        raise EtdevError(source, f"has no method {method!r}", f"it has {', '.join(methods)}")
    return methods


def _inputs(file: Path | None, program: Path, method: str, model: Method | None) -> list[Any]:
    """Return the inputs of a file, else the example's, else random ones."""
    from etdev.runtime.inputs import load_inputs, random_inputs
    from etdev.upstream.trees import flat

    if file:
        return load_inputs(file)
    return flat(model.example()) if model else random_inputs(program, method)


def _profile(program: Path, values: list[Any], method: str, *settings: Any) -> Profile:
    from etdev.pte.embedded_plan import find_ledger
    from etdev.runtime.profiling import profile

    repeat, data, runner = settings
    return profile(program, values, method, repeat, data, find_ledger(program), runner)


def _fields(result: CallResult, compared: Compared, measured: Profile | None) -> dict[str, Any]:
    """Return what `--json` prints of a run."""
    verification = CONVERTER.unstructure(compared.verification)
    fields = tables.run_fields(result, compared.differences) | {"verification": verification}
    if measured:
        costs = {"runs": measured.runs, "costs": measured.costs}
        fields["profile"] = CONVERTER.unstructure(costs)
    return fields


def _profile_lines(measured: Profile) -> Iterator[Sheet | str]:
    yield from presenters.sheets(measured)
    if not measured.times:
        yield "For plugins, modules and reasons, lower it without --no-ledger."


def _compared(
    verifier: Verifier, method: str, result: CallResult, inputs: Sequence[Any] | None
) -> Compared:
    """Compare the outputs of a run with PyTorch's, and verify the file."""
    from etdev.verify.oracle import Oracle
    from etdev.verify.output_error import compare

    verification = failure = None
    try:
        verification = verifier.verify({method: [inputs]} if inputs else None)
        verification.require("leave out --check to run it alone")
    except VerifyError as error:
        failure = error
    session = verifier.sessions.get(method)
    if not session or not session.calls:
        return Compared((), verification, failure)
    expected = session.calls[0]
    if len(verifier.sessions) > 1:
        # By itself: the calls of the session may follow those of other methods.
        expected = Oracle([session.reference]).call(session.reference, expected.inputs)
    return Compared(compare(result.outputs, expected.outputs), verification, failure)


def _verifier(program: Path, methods: Any, decided: Any, **settings: Any) -> Verifier:
    from etdev.edge.shared_state import references_of, shared_states
    from etdev.edge.source import export
    from etdev.quirks import QUIRKS
    from etdev.quirks.table import Fixer, Table
    from etdev.verify.verifier import Verifier

    # The state of a method may cross to any other one.
    fixer = Fixer(Table(QUIRKS))
    programs = {name: export(known, fixer) for name, known in methods.items()}
    references = references_of(methods, programs, shared_states(programs), fixer.doubts)
    references.update(decided.references if decided else {})
    return Verifier(program, references, decided=decided, **settings)
