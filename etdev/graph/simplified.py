"""What was simplified in a program: a note on its graph, which the plan repeats."""

from __future__ import annotations

from collections.abc import Mapping

from torch.export import ExportedProgram

_KEY = "etdev_simplified"


def note(program: ExportedProgram, counts: Mapping[str, int]) -> None:
    """Write down how often each kind of simplification was made in a program of ours."""
    program.graph_module.meta[_KEY] = tuple(sorted(counts.items()))


def simplified_in(program: ExportedProgram) -> tuple[tuple[str, int], ...]:
    """How often each kind of simplification was made."""
    counts: tuple[tuple[str, int], ...] = program.graph_module.meta.get(_KEY, ())
    return counts
