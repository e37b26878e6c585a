"""Lines: what `etdev run` prints about outputs and delegates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etdev.runtime.bisect import Suspect
    from etdev.runtime.compare import Difference
    from etdev.runtime.run import Run


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
