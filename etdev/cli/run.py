"""`etdev run` runs a .pte in ExecuTorch's runtime, and compares it with PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etdev.cli import lowerers, options, results, source_names, tables, viewing
from etdev.cli.group import Command
from etdev.cli.progress import working
from etdev.errors import EtdevError, VerifyError
from etdev.report import presenters
from etdev.report.sheet import Sheet
from etdev.schema.documents import RUN
from etdev.schema.structuring import CONVERTER

if TYPE_CHECKING:
    from etdev.runtime.worker import CallResult
    from etdev.schema.target import Target
    from etdev.verify.output_error import OutputError
    from etdev.verify.verification import Verification
    from etdev.verify.verifier import Verifier


@click.command("run", cls=Command)
@options.program
@click.option(
    "--inputs", type=options.FILE, callback=options.existing, help="Inputs written by torch.save."
)
@click.option("--check", metavar="SOURCE", help="Compare with this model in PyTorch.")
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
    read(program)
    model = verification = failure = None
    differences: Sequence[OutputError] = ()
    with working(runs=True, executorch=bool(check or profile)) as say:
        from etdev.registry import load
        from etdev.registry.selection import discover
        from etdev.runtime.inputs import load_inputs, random_inputs
        from etdev.runtime.run import run
        from etdev.runtime.runners import runner_of
        from etdev.upstream.trees import flat

        plugins = [finding.plugin for finding in discover(load()) if finding.plugin]
        if check:
            from etdev.cli import sources

            methods = sources.methods(check, say)
            if method not in methods:
                what = f"has no method {method!r}"
                raise EtdevError(check, what, f"it has {', '.join(methods)}")
            model = methods[method]
            lowerer = lowerers.lowerer(say, **lowering) if bisect else None
            decided = lowerer.decide({method: model}) if lowerer else None
            asked: Any = {"method": method, "steps": steps or 1, "tolerance": tolerance}
            asked |= {"data": data, "plugins": plugins, "runner": runner, "target": target}
            asked["listener"] = say
            verifier = _verifier(program, methods, decided, **asked)
        if inputs:
            values = load_inputs(inputs)
        else:
            values = flat(model.example()) if model else random_inputs(program, method)
        say("run", str(program))
        chosen = runner_of(read(program), plugins, runner, target)
        result = run(program, values, method, repeat, data, chosen)
        if model:
            given = values if inputs else None
            differences, verification, failure = _checked(verifier, method, result, given)
        if profile:
            from etdev.pte.embedded_plan import find_ledger
            from etdev.runtime.profiling import profile as profiled

            say("profile", str(program))
            known = find_ledger(program)
            measured = profiled(program, values, method, repeat, data, known, chosen)
            viewing.write(lambda: viewing.of_artifact(program, measured))
    fields = {
        "program": str(program),
        "method": method,
        **tables.run_fields(result, differences),
        "verification": CONVERTER.unstructure(verification),
    }
    lines: list[Sheet | str] = [
        *tables.run_lines(result, differences, timed=not getattr(chosen, "emulated", False)),
        *(verification.lines() if verification else ()),
    ]
    if profile:
        costs = {"runs": measured.runs, "costs": measured.costs}
        fields["profile"] = CONVERTER.unstructure(costs)
        lines += presenters.sheets(measured)
        if not measured.times:
            lines.append("For plugins, modules and reasons, lower it without --no-ledger.")
    results.report(lambda: RUN.stamped(fields), lines)
    if failure:
        # The outputs are shown first.
        raise failure


def _checked(
    verifier: Verifier, method: str, result: CallResult, inputs: Sequence[Any] | None
) -> tuple[Sequence[OutputError], Verification | None, VerifyError | None]:
    """Return how far the outputs of a run are from PyTorch's, the verification, or its error."""
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
        return (), verification, failure
    expected = session.calls[0]
    if len(verifier.sessions) > 1:
        # By itself: the calls of the session may follow those of other methods.
        expected = Oracle([session.reference]).call(session.reference, expected.inputs)
    return compare(result.outputs, expected.outputs), verification, failure


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
