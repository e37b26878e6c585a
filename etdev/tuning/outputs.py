"""Outputs: the files of a tuning, which appear together or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from etdev.errors import ArtifactError
from etdev.schema.documents import CONVERTER, TUNING
from etdev.schema.lock import Lock
from etdev.schema.tuning import Report


@frozen
class Outputs:
    """Where the files of a tuning are.

    Args:
        program: The .pte.
    """

    program: Path

    @property
    def registry(self) -> Path:
        """The registry file that lowers to the same bytes."""
        return self.program.with_suffix(".registry.toml")

    @property
    def lock(self) -> Path:
        """The lock of the .pte."""
        return self.program.with_suffix(".lock")

    @property
    def report(self) -> Path:
        """The report."""
        return self.program.with_suffix(".tuning.json")

    def check(self) -> None:
        """Refuse a path that can't be written before the long work, not after it.

        Raises:
            ArtifactError: It can't be.
        """
        path = self.program
        if path.suffix != ".pte":
            raise ArtifactError(str(path), "does not end in .pte", "name it model.pte")
        if not path.parent.is_dir():
            what = f"there is no folder {str(path.parent)!r}"
            raise ArtifactError(str(path), what, "create it first")
        try:
            # Tried, not asked: os.access tells root that everything can be written.
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            what = f"can't be written ({error.strerror})"
            raise ArtifactError(str(path), what, "choose another path") from error

    @contextmanager
    def out_of_sight(self) -> Iterator[Outputs]:
        """Outputs in a folder beside these, for what isn't settled yet."""
        with tempfile.TemporaryDirectory(prefix=".etdev-", dir=self.program.parent) as folder:
            yield Outputs(Path(folder) / self.program.name)

    def publish(self, hidden: Outputs, lock: Lock, report: Report) -> None:
        """Write lock and report beside hidden files, and move all of them here.

        Raises:
            ArtifactError: They can't be written.
        """
        try:
            hidden.lock.write_text(lock.to_json(), "utf-8")
            hidden.report.write_text(report_text(report), "utf-8")
            data = sorted(hidden.program.parent.glob(f"{hidden.program.stem}.*.ptd"))
            for file in (*data, hidden.program, hidden.registry, hidden.lock, hidden.report):
                os.replace(file, self.program.parent / file.name)
        except OSError as error:
            what = f"can't be written ({error.strerror})"
            raise ArtifactError(str(self.program), what, "choose another path") from error


def report_text(report: Report) -> str:
    """A report as the text of its document."""
    return json.dumps(TUNING.stamped(CONVERTER.unstructure(report)), indent=2) + "\n"
