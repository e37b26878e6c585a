"""`etdev run`: a .pte in ExecuTorch's runtime, compared with PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from etdev.cli import options
from etdev.cli.progress import Say, working
from etdev.errors import EtdevError

if TYPE_CHECKING:
    from etdev.edge.source import Method
    from etdev.runtime.bisect import Bisection, Suspect
    from etdev.runtime.compare import Difference
    from etdev.runtime.run import Run

# --bisect looks for a delegate whose absolute error is above this if there is no --tolerance.
_TOLERANCE = 1e-3


@click.command("run")
@options.program
@click.option("--inputs", type=options.FILE, help="Inputs written by torch.save.")
@click.option("--check", metavar="SOURCE", help="Compare with this model in PyTorch.")
@click.option("--tolerance", type=float, help="With --check: fail above this absolute error.")
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
    etdev run net.pte --check net.py:model --bisect --plugin cpu

    Exit codes: 0 for success; 1 for an error, an output above --tolerance, or a delegate that
    --bisect finds; 2 for wrong usage.
    """
    _check_usage(check, tolerance, bisect, lowering)
    with working(options.debugging()) as say:
        from etdev.cli import sources
        from etdev.runtime.run import run

        model = sources.method(check, method, say) if check else None
        values = _inputs(program, inputs, model, method)
        say("run", str(program))
        result = run(program, values, method, repeat, data)
        if model:
            say("check", str(check))
        comparison = _compared(model, values, result) if model else None
    differences = comparison.differences if comparison else ()
    for line in _outputs(result, differences):
        print(line)
    if bisect and comparison:
        _bisect(program, comparison, _TOLERANCE if tolerance is None else tolerance, lowering)
    for index, difference in enumerate(differences):
        if tolerance is not None and difference.exceeds(tolerance):
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


def _check_usage(
    check: str | None, tolerance: float | None, bisect: bool, lowering: Mapping[str, Any]
) -> None:
    if check is None and (tolerance is not None or bisect):
        name = "--bisect" if bisect else "--tolerance"
        raise click.UsageError(f"{name} needs --check SOURCE")
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
        lines = _agreement(suspects, tolerance)
    else:
        lines = _departure(guilty, comparison.differences, swapped)
    for line in lines:
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


def _outputs(result: Run, differences: Sequence[Difference]) -> Iterator[str]:
    for index, output in enumerate(result.outputs):
        shape = tuple(output.shape) if hasattr(output, "shape") else output
        line = f"output {index}: {getattr(output, 'dtype', type(output).__name__)} {shape}"
        if differences:
            line += f", {_error(differences[index])}"
        yield line.replace("torch.", "")
    times = result.latency_ms
    yield f"latency: {result.median_ms:.2f} ms median of {len(times)}, fastest {min(times):.2f}"


def _agreement(suspects: Sequence[Suspect], tolerance: float) -> Iterator[str]:
    yield f"none of {len(suspects)} delegates departs from PyTorch by more than {tolerance:g}"
    if suspects:
        worst = max(suspects, key=lambda suspect: suspect.difference.max_error)
        yield f"the furthest is {worst.partition.name}: {_error(worst.difference)}"


def _departure(
    guilty: Suspect, differences: Sequence[Difference], swapped: Sequence[Difference] | None
) -> Iterator[str]:
    """Say which delegate departs, where it comes from, and what the outputs are without it."""
    partition = guilty.partition
    yield (
        f"{partition.name} departs from PyTorch: plugin {partition.plugin}, "
        f"{partition.backend_id}, output {guilty.output}, {_error(guilty.difference)}"
    )
    yield f"it computes {', '.join(path or 'the model itself' for path in guilty.modules)}"
    if swapped is None:
        yield "there are no portable kernels to run it on instead"
        return
    for index, (before, after) in enumerate(zip(differences, swapped, strict=True)):
        yield (
            f"output {index}: max error {before.max_error:.3g}, "
            f"{after.max_error:.3g} with {partition.name} on portable kernels instead"
        )


def _error(difference: Difference) -> str:
    return f"max error {difference.max_error:.3g} (largest value {difference.max_value:.3g})"
