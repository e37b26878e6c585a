"""Lines and fields about a run: its outputs, and the delegate that --bisect finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from etdev.runtime.bisect import Suspect
    from etdev.runtime.compare import Difference
    from etdev.runtime.run import Run


def lines(result: Run, differences: Sequence[Difference]) -> Iterator[str]:
    """Yield each output with its error against PyTorch if that is known, and the latency."""
    for index, output in enumerate(result.outputs):
        shape = tuple(output.shape) if hasattr(output, "shape") else output
        error = f", {_error(differences[index])}" if differences else ""
        kind = getattr(output, "dtype", type(output).__name__)
        yield f"output {index}: {kind} {shape}{error}".replace("torch.", "")
    times = result.latency_ms
    yield f"latency: {result.median_ms:.2f} ms median of {len(times)}, fastest {min(times):.2f}"


def fields(result: Run, differences: Sequence[Difference]) -> dict[str, Any]:
    """Return outputs and latency as plain data."""
    outputs = []
    for index, output in enumerate(result.outputs):
        kind = str(getattr(output, "dtype", type(output).__name__)).removeprefix("torch.")
        shape = list(output.shape) if hasattr(output, "shape") else None
        difference = differences[index] if differences else None
        outputs.append(
            {
                "type": kind,
                "shape": shape,
                "max_error": difference and difference.max_error,
                "max_value": difference and difference.max_value,
            }
        )
    return {"outputs": outputs, "latency_ms": list(result.latency_ms)}


@frozen(eq=False)
class Bisected:
    """The result of --bisect.

    Args:
        suspects: The delegates that were called; the last one departs from PyTorch if any does.
        tolerance: Largest absolute error of a delegate that agrees with PyTorch.
        differences: Errors of the model's outputs.
        swapped: Errors of the outputs with portable kernels in place of the guilty delegate.
    """

    suspects: Sequence[Suspect]
    tolerance: float
    differences: Sequence[Difference]
    swapped: Sequence[Difference] | None = None

    @property
    def guilty(self) -> Suspect | None:
        """The first delegate that departs from PyTorch; None if all agree."""
        last = self.suspects[-1] if self.suspects else None
        return last if last and last.departs(self.tolerance) else None

    def lines(self) -> Iterator[str]:
        """Yield the delegate that departs and its effect on the outputs, or the largest error."""
        if self.guilty is None:
            count, most = len(self.suspects), self.tolerance
            yield f"none of {count} delegates departs from PyTorch by more than {most:g}"
            if self.suspects:
                worst = max(self.suspects, key=lambda suspect: suspect.difference.max_error)
                yield f"the furthest is {worst.partition.name}: {_error(worst.difference)}"
            return
        partition = self.guilty.partition
        yield (
            f"{partition.name} departs from PyTorch: plugin {partition.plugin}, "
            f"{partition.backend_id}, output {self.guilty.output}, {_error(self.guilty.difference)}"
        )
        yield f"it computes {', '.join(path or 'the model itself' for path in self.guilty.modules)}"
        if self.swapped is None:
            yield "there are no portable kernels to run it on instead"
            return
        for index, (before, after) in enumerate(zip(self.differences, self.swapped, strict=True)):
            yield (
                f"output {index}: max error {before.max_error:.3g}, "
                f"{after.max_error:.3g} with {partition.name} on portable kernels instead"
            )

    def fields(self) -> dict[str, Any]:
        """Return the result as plain data."""
        delegates = [
            {
                "partition": suspect.partition.name,
                "plugin": suspect.partition.plugin,
                "modules": list(suspect.modules),
                "output": suspect.output,
                "max_error": suspect.difference.max_error,
                "max_value": suspect.difference.max_value,
            }
            for suspect in self.suspects
        ]
        return {
            "tolerance": self.tolerance,
            "delegates": delegates,
            "departs": self.guilty.partition.name if self.guilty else None,
            "max_errors_without": [item.max_error for item in self.swapped or ()],
        }


def _error(difference: Difference) -> str:
    return f"max error {difference.max_error:.3g} (largest value {difference.max_value:.3g})"
