"""What a tuning gives: a .pte, the registry that makes it again, and the report."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from etdev.schema.plan import Plan
from etdev_tune.report import Report


@frozen(eq=False)
class Tuning:
    """A tuning that came to its end.

    Args:
        program: The .pte.
        registry: The registry file that lowers the model to the same bytes.
        lock: The lock of the .pte.
        plan: The plan of the .pte.
        report: Candidates, moves, and how sure it is.
    """

    program: Path
    registry: Path
    lock: Path
    plan: Plan
    report: Report

    @property
    def untuned(self) -> bool:
        """Whether the untuned plan stayed."""
        confirmation = self.report.confirmation
        return confirmation is None or not confirmation.clear
