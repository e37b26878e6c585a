"""Bisection: `etdev run --bisect`, and what it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from etdev.cli import lines, lowerers, options
from etdev.cli.progress import Say, working

if TYPE_CHECKING:
    from etdev.edge.source import Method
    from etdev.runtime.bisect import Bisection, Suspect
    from etdev.runtime.compare import Difference


@frozen(eq=False)
class Comparison:
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


@frozen(eq=False)
class Search:
    """What --bisect comes to.

    Args:
        suspects: The delegates that were called.
        tolerance: What they may be off by.
        guilty: The first that departs from PyTorch, or None.
        differences: How far the outputs are off.
        swapped: Likewise, with portable kernels instead of the guilty delegate.
    """

    suspects: Sequence[Suspect]
    tolerance: float
    guilty: Suspect | None
    differences: Sequence[Difference]
    swapped: Sequence[Difference] | None

    def lines(self) -> Iterator[str]:
        if self.guilty is None:
            return lines.agreement(self.suspects, self.tolerance)
        return lines.departure(self.guilty, self.differences, self.swapped)

    def fields(self) -> dict[str, Any]:
        return {
            "tolerance": self.tolerance,
            "delegates": [lines.suspect_fields(suspect) for suspect in self.suspects],
            "departs": self.guilty.partition.name if self.guilty else None,
            "max_errors_without": [item.max_error for item in self.swapped or ()],
        }


def search(
    program: Path, comparison: Comparison, tolerance: float, lowering: Mapping[str, Any]
) -> Search:
    """Look for the first delegate that departs from PyTorch."""
    name = comparison.model.name
    with working(options.debugging()) as say:
        from etdev.runtime.bisect import bisection

        decision = lowerers.lowerer(say, **lowering).decide({name: comparison.model})
        delegates = bisection(program, decision, name, comparison.inputs)
        suspects = _called(delegates, tolerance, say)
        guilty = suspects[-1] if suspects and suspects[-1].departs(tolerance) else None
        swapped = delegates.swapped(guilty, comparison.expected) if guilty else None
    return Search(suspects, tolerance, guilty, comparison.differences, swapped)


def _called(delegates: Bisection, tolerance: float, say: Say) -> list[Suspect]:
    """Call the delegates one by one, up to and with the first that departs from PyTorch."""
    suspects: list[Suspect] = []
    for suspect in delegates.suspects():
        suspects.append(suspect)
        say("bisect", f"{len(suspects)}/{len(delegates.plan.partitions)}")
        if suspect.departs(tolerance):
            break
    return suspects
