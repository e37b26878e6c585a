"""Causes: what of a model ExecuTorch's conversion failed on."""

from __future__ import annotations

from collections.abc import Collection

from torch.export import ExportedProgram

from etdev.edge.branches import name_writes
from etdev.edge.complex_numbers import name_complex


def name_cause(programs: Collection[ExportedProgram], error: Exception) -> None:
    """Say which ops a conversion failed on, if they are of a kind that it fails on.

    Args:
        programs: ATen programs.
        error: What ExecuTorch raised.

    Raises:
        LoweringError: They are.
    """
    name_writes(programs, error)
    name_complex(programs, error)
