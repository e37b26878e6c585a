"""`etdev run`: a .pte in ExecuTorch's runtime, compared with PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from etdev.cli import lines, options, tables
from etdev.cli.progress import Say, working
from etdev.errors import EtdevError

if TYPE_CHECKING:
    from etdev.decision import Decision
    from etdev.edge.source import Method
    from etdev.runtime.bisect import Bisection, Suspect
    from etdev.runtime.compare import Difference
    from etdev.runtime.run import Run
    from etdev.runtime.verify import Verifier

# --bisect looks for a delegate whose absolute error is above this if there is no --tolerance.
_TOLERANCE = 1e-3


@click.command("run")
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
    **lowering: Any,
) -> None:
    """Run a .pte in ExecuTorch's runtime.

    Prints the shape of each output, with --check its error against PyTorch, and the latency. Inputs
    come from --inputs, else from the model given with --check, else they are random.

    \b
    etdev run net.pte
    etdev run net.pte --check net.py:model --tolerance 1e-4
    etdev run net.pte --check net.py:model --steps 5
    etdev run net.pte --check net.py:model --bisect --plugin cpu

    Exit codes: 0 for success; 1 for an error, an output above --tolerance, or a delegate that
    --bisect finds; 2 for wrong usage.
    """
    _check_usage(check, tolerance, steps, edges, bisect, lowering)
    verified: list[str] = []
    with working(options.debugging()) as say:
        from etdev.cli import sources
        from etdev.runtime.run import run

        model = sources.method(check, method, say) if check else None
        values = _inputs(program, inputs, model, method)
        if model and steps is not None:
            decide = options.lowerer(say, **lowering).decide if bisect else None
            decision = decide({method: model}) if decide else None
            verifier = _verifier(program, model, steps, edges, tolerance, data, decision, say)
            given = {method: [values]} if inputs else None
            verified += tables.verification_lines(verifier.verify(given))
        say("run", str(program))
        result = run(program, values, method, repeat, data)
        if model:
            say("check", str(check))
        comparison = _compared(model, values, result) if model else None
    differences = comparison.differences if comparison else ()
    for line in (*verified, *lines.outputs(result, differences)):
        print(line)
    if bisect and comparison:
        _bisect(program, comparison, _TOLERANCE if tolerance is None else tolerance, lowering)
    for index, difference in enumerate(differences):
        if tolerance is not None and steps is None and difference.exceeds(tolerance):
            error = f"max error {difference.max_error:.3g} of output {index}"
            raise EtdevError(
                "check", f"{error} is above {tolerance:g}", "find the delegate with --bisect"
            )


@frozen(eq=False)
class _Comparison:
    """A method in the runtime and in PyTorch, on the same inputs.

    Args:
        model: The method in PyTorch.
        inputs: Its inputs, flat.
        expected: PyTorch's outputs, flat.
        differences: How far each of the runtime's outputs is from them.
    """

    model: Method
    inputs: Sequence[Any]
    expected: Sequence[Any]
    differences: Sequence[Difference]


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
    from etdev.runtime.verify import Verifier

    references = {model.name: Reference.of(model, model.export())}
    return Verifier(program, references, steps, edges, tolerance, data, decision, say)


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


def _compared(model: Method, inputs: Sequence[Any], result: Run) -> _Comparison:
    from etdev.runtime.compare import compare, flat

    expected = flat(model.eager(inputs))
    return _Comparison(model, inputs, expected, compare(result.outputs, expected))


def _bisect(
    program: Path, comparison: _Comparison, tolerance: float, lowering: Mapping[str, Any]
) -> None:
    """Print the first delegate that departs from PyTorch, and exit with 1 if there is one."""
    name = comparison.model.name
    with working(options.debugging()) as say:
        from etdev.runtime.bisect import bisection

        decision = options.lowerer(say, **lowering).decide({name: comparison.model})
        delegates = bisection(program, decision, name, comparison.inputs)
        suspects = _search(delegates, tolerance, say)
        guilty = suspects[-1] if suspects and suspects[-1].departs(tolerance) else None
        swapped = delegates.swapped(guilty, comparison.expected) if guilty else None
    if guilty is None:
        report = lines.agreement(suspects, tolerance)
    else:
        report = lines.departure(guilty, comparison.differences, swapped)
    for line in report:
        print(line)
    if guilty:
        click.get_current_context().exit(1)


def _search(delegates: Bisection, tolerance: float, say: Say) -> list[Suspect]:
    """Call the delegates one by one, up to and with the first that departs from PyTorch."""
    suspects: list[Suspect] = []
    for suspect in delegates.suspects():
        suspects.append(suspect)
        say("bisect", f"{len(suspects)}/{len(delegates.plan.partitions)}")
        if suspect.departs(tolerance):
            break
    return suspects
