"""The contract as pytest tests: subclass `PluginConformance` and give your plugin.

    from etdev.testing import Requirements
    from etdev.testing.conformance import PluginConformance

    class TestNpu(PluginConformance):
        requirements = Requirements(dtypes=("float32",))

        @pytest.fixture
        def plugin(self):
            return NpuPlugin()

A method `make` can replace the fixture. Checks that were not made are skipped tests with a reason,
which `pytest -rs` lists. With `scoreboard` set to a path the results are written there as JSON.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch

from etdev.files import write_text
from etdev.testing.contract import CHECKS, Check
from etdev.testing.programs import Calls
from etdev.testing.scoreboard import Result, Scoreboard, result_of
from etdev.testing.simulation import Simulator
from etdev.testing.subject import Requirements, Subject


class PluginConformance:
    """Tests of a plugin, one for each check of the contract.

    Its subclasses may set these:
        requirements: Requirements that the plugin has to meet.
        simulators: Simulators of backends that ExecuTorch's runtime lacks, by backend name;
            see `run`.
        models: Models of the author's own, and the arguments of each call of them.
        scoreboard: Path of the file for the results, as JSON.
    """

    requirements: ClassVar[Requirements] = Requirements()
    simulators: ClassVar[Mapping[str, Simulator]] = {}
    models: ClassVar[Sequence[tuple[torch.nn.Module, Calls]]] = ()
    scoreboard: ClassVar[str | Path | None] = None
    _results: ClassVar[list[Result]]

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls._results = []

    def make(self) -> object:
        """Make the plugin, a new one each time."""
        raise NotImplementedError("give your plugin with a fixture `plugin`, or return it in make")

    @pytest.fixture
    def plugin(self) -> object:
        """Return the plugin; each check uses a copy of it."""
        return self.make()

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    def test_contract(self, check: Check, plugin: object) -> None:
        """Make one check of the contract."""

        def fresh() -> object:
            return plugin if isinstance(plugin, ModuleType) else copy.deepcopy(plugin)

        subject = Subject(fresh, self.requirements, self.simulators, self.models)
        # A test may be run again.
        self._results[:] = [result for result in self._results if result.check != check.name]
        result = result_of(check, subject, self._results)
        self._results.append(result)
        if self.scoreboard is not None:
            opt_outs = self.requirements.opt_outs
            board = Scoreboard(subject.name, tuple(self._results), opt_outs)
            write_text(Path(self.scoreboard), board.to_json())
        if result.outcome == "skipped":
            pytest.skip(result.text)
        if result.outcome == "broken":
            pytest.fail(result.text, pytrace=False)
