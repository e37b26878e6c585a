"""What was simplified in a program: a note on its graph, which the plan repeats."""

from __future__ import annotations

from collections.abc import Iterable

from torch.export import ExportedProgram

from etdev.schema.simplification import Simplification

_KEY = "etdev_simplified"


def note(program: ExportedProgram, simplified: Iterable[Simplification]) -> None:
    """Write down what was simplified in a program of ours."""
    program.graph_module.meta[_KEY] = tuple(simplified)


def simplified_in(program: ExportedProgram) -> tuple[Simplification, ...]:
    """What was simplified, in the order of the graph before."""
    simplified: tuple[Simplification, ...] = program.graph_module.meta.get(_KEY, ())
    return simplified
