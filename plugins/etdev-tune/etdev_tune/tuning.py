"""Result of a tuning: a .pte, the registry that makes it again, and the report."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from etdev.schema.plan import Plan
from etdev_tune.report import Report


@frozen(eq=False)
class Tuning:
    """Result of a tuning.

    Args:
        program: Path of the .pte.
        registry: Path of the registry file that lowers the model to the same bytes.
        lock: Path of the lock of the .pte.
        plan: Plan of the .pte.
        report: Candidates, moves, and the last comparison.
    """

    program: Path
    registry: Path
    lock: Path
    plan: Plan
    report: Report

    @property
    def untuned(self) -> bool:
        """Return True if the untuned plan was kept."""
        confirmation = self.report.confirmation
        return confirmation is None or not confirmation.clear
