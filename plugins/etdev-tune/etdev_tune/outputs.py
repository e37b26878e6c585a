"""Result of a tuning, and its files, which appear together or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from attrs import frozen

from etdev import Plan
from etdev.app import files
from etdev.errors import EtdevError
from etdev_tune.report import TUNING, Report

# Of registry, lock and report.
SUFFIXES = (".registry.toml", ".lock", ".tuning.json")


@frozen
class Outputs:
    """Paths of the files of a tuning, all made of the path of the .pte."""

    program: Path

    @property
    def registry(self) -> Path:
        """Path of the registry file that lowers to the same bytes."""
        return self.program.with_suffix(SUFFIXES[0])

    @property
    def lock(self) -> Path:
        """Path of the lock of the .pte."""
        return self.program.with_suffix(SUFFIXES[1])

    @property
    def report(self) -> Path:
        """Path of the report."""
        return self.program.with_suffix(SUFFIXES[2])

    def check(self) -> None:
        """Check that the files can be written.

        Raises:
            ArtifactError: One of them can't be written.
        """
        files.check_writable(self.program, ".pte")
        for path in (self.registry, self.lock, self.report):
            files.check_writable(path)

    def publish(self, hidden: Outputs, lock: str, report: Report) -> None:
        """Write lock and report next to hidden files, and move all of them here.

        Raises:
            ArtifactError: A file can't be written.
        """
        files.write_text(hidden.lock, lock)
        files.write_text(hidden.report, json.dumps(TUNING.of(report), indent=2) + "\n")
        data = sorted(hidden.program.parent.glob(f"{hidden.program.stem}.*.ptd"))
        beside = (hidden.program, hidden.registry, hidden.lock, hidden.report)
        files.publish((*data, *beside), self.program)

    def read_report(self) -> Report:
        """Read the report.

        Raises:
            EtdevError: It can't be read.
        """
        try:
            text = self.report.read_text("utf-8")
        except OSError as error:
            cure = f"write it with etdev tune SOURCE -o {self.program}"
            what = f"can't be read ({error.strerror})"
            raise EtdevError(str(self.report), what, cure) from error
        return TUNING.read(text, Report, str(self.report))


@frozen(eq=False)
class Tuning:
    """Result of a tuning: the paths of its files, the plan of the .pte, and the report."""

    program: Path
    registry: Path
    lock: Path
    plan: Plan
    report: Report
