"""Lines: what `etdev run` prints about outputs and delegates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev.cli import tables

if TYPE_CHECKING:
    from etdev.runtime.bisect import Suspect
    from etdev.runtime.compare import Difference
    from etdev.runtime.run import Run
    from etdev.runtime.verify import Verification


def run(
    result: Run, differences: Sequence[Difference], verification: Verification | None
) -> Iterator[str]:
    """Say what was verified, and what the outputs are."""
    if verification:
        yield from tables.verification_lines(verification)
    yield from outputs(result, differences)


def run_fields(
    program: Path,
    method: str,
    result: Run,
    differences: Sequence[Difference],
    verification: Verification | None,
) -> dict[str, Any]:
    """The same as plain data."""
    values = []
    for index, output in enumerate(result.outputs):
        shape = list(output.shape) if hasattr(output, "shape") else None
        kind = str(getattr(output, "dtype", type(output).__name__)).removeprefix("torch.")
        difference = differences[index] if differences else None
        values.append(
            {
                "type": kind,
                "shape": shape,
                "max_error": difference.max_error if difference else None,
                "max_value": difference.max_value if difference else None,
            }
        )
    return {
        "program": str(program),
        "method": method,
        "outputs": values,
        "latency_ms": list(result.latency_ms),
        "verification": tables.verification_fields(verification),
    }


def suspect_fields(suspect: Suspect) -> dict[str, Any]:
    """A delegate that was called by itself, as plain data."""
    return {
        "partition": suspect.partition.name,
        "plugin": suspect.partition.plugin,
        "modules": list(suspect.modules),
        "output": suspect.output,
        "max_error": suspect.difference.max_error,
        "max_value": suspect.difference.max_value,
    }


def outputs(result: Run, differences: Sequence[Difference]) -> Iterator[str]:
    """Say what each output is, how far from eager if that is known, and the latency."""
    for index, output in enumerate(result.outputs):
        shape = tuple(output.shape) if hasattr(output, "shape") else output
        line = f"output {index}: {getattr(output, 'dtype', type(output).__name__)} {shape}"
        if differences:
            line += f", {_error(differences[index])}"
        yield line.replace("torch.", "")
    times = result.latency_ms
    yield f"latency: {result.median_ms:.2f} ms median of {len(times)}, fastest {min(times):.2f}"


def agreement(suspects: Sequence[Suspect], tolerance: float) -> Iterator[str]:
    """Say that no delegate departs from eager, and how far the worst is."""
    yield f"none of {len(suspects)} delegates departs from PyTorch by more than {tolerance:g}"
    if suspects:
        worst = max(suspects, key=lambda suspect: suspect.difference.max_error)
        yield f"the furthest is {worst.partition.name}: {_error(worst.difference)}"


def departure(
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
