"""Outcomes: what a run and a bisection came to, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etdev.runtime.bisect import Suspect
from etdev.runtime.run import Difference, Run


def run_lines(done: Run, errors: Sequence[Difference]) -> Iterator[str]:
    """Outputs of a run, their errors against PyTorch, and the latency."""
    for index, output in enumerate(done.outputs):
        shape = tuple(output.shape) if hasattr(output, "shape") else output
        line = f"output {index}: {getattr(output, 'dtype', type(output).__name__)} {shape}"
        if errors:
            line += f", {_departs(errors[index])}"
        yield line.replace("torch.", "")
    times = done.latency_ms
    yield (f"latency: {done.median_ms:.2f} ms median of {len(times)}, fastest {min(times):.2f}")


def bisection_lines(
    suspects: Sequence[Suspect],
    guilty: Suspect | None,
    tolerance: float,
    errors: Sequence[Difference],
    swapped: Sequence[Difference] | None,
) -> Iterator[str]:
    """Which delegate departs from PyTorch, where it comes from, and what it is like without it.

    Args:
        suspects: The delegates that were called by themselves, in the order in which they run.
        guilty: The first that departs.
        tolerance: By more than this.
        errors: Of the method's outputs.
        swapped: The same with the guilty one on portable kernels; None if there are none for it.
    """
    if guilty is None:
        yield f"none of {len(suspects)} delegates departs from PyTorch by more than {tolerance:g}"
        if suspects:
            worst = max(suspects, key=lambda suspect: suspect.difference.max_error)
            yield f"the furthest is {worst.partition.name}: {_departs(worst.difference)}"
        return
    part = guilty.partition
    yield (
        f"{part.name} departs from PyTorch: plugin {part.plugin}, {part.backend_id}, "
        f"output {guilty.output}, {_departs(guilty.difference)}"
    )
    yield f"it computes {', '.join(path or 'the model itself' for path in guilty.modules)}"
    if swapped is None:
        yield "there are no portable kernels to run it on instead"
        return
    for index, (before, after) in enumerate(zip(errors, swapped, strict=True)):
        yield (
            f"output {index}: max error {before.max_error:.3g}, "
            f"{after.max_error:.3g} with {part.name} on portable kernels instead"
        )


def _departs(difference: Difference) -> str:
    return f"max error {difference.max_error:.3g} (largest value {difference.max_value:.3g})"
