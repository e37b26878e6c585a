"""The contract as pytest tests: subclass `PluginConformance` and give your plugin.

    from etdev.testing import Requirements
    from etdev.testing.conformance import PluginConformance

    class TestNpu(PluginConformance):
        requirements = Requirements(dtypes=("float32",))

        def make(self):
            return NpuPlugin()

Opt-outs show as skipped tests with their reason; `pytest -rs` lists them. With `scoreboard` set to
a path the results are written there as JSON.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from etdev.files import write_text
from etdev.testing.checks import CHECKS, Check, Requirements, Subject
from etdev.testing.scoreboard import Result, Scoreboard, result_of


class PluginConformance:
    """Holds the plugin that `make` makes to every check of the contract."""

    requirements: ClassVar[Requirements] = Requirements()
    scoreboard: ClassVar[str | Path | None] = None
    _results: ClassVar[list[Result]]

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls._results = []

    def make(self) -> object:
        """The plugin, a new one each time."""
        raise NotImplementedError("return your plugin from make")

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    def test_contract(self, check: Check) -> None:
        """A part of the contract."""
        subject = Subject(self.make, self.requirements)
        result = result_of(check, subject, self._results)
        self._results.append(result)
        if self.scoreboard is not None:
            board = Scoreboard(subject.name, tuple(self._results))
            write_text(Path(self.scoreboard), board.to_json())
        if result.outcome == "skipped":
            pytest.skip(result.text)
        if result.outcome == "broken":
            pytest.fail(result.text, pytrace=False)
