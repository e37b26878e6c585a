"""The contract as pytest tests: subclass `PluginConformance` and give your plugin.

    from etdev.testing import Requirements
    from etdev.testing.conformance import PluginConformance

    class TestNpu(PluginConformance):
        requirements = Requirements(dtypes=("float32",))

        @pytest.fixture
        def plugin(self):
            return NpuPlugin()

Instead of the fixture, a method `make` will do. What was not asked shows as skipped tests with the
reason; `pytest -rs` lists them. With `scoreboard` set to a path the results are written there as
JSON.
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
from etdev.testing.execution import Calls
from etdev.testing.requirements import Requirements
from etdev.testing.scoreboard import Result, Scoreboard, result_of
from etdev.testing.simulation import Simulator
from etdev.testing.subject import Subject


class PluginConformance:
    """Holds a plugin to every check of the contract.

    Its subclasses may set these:
        requirements: What may be asked of the plugin.
        simulators: By the name of a backend that ExecuTorch's runtime does not have, what computes
            a payload: `simulate(payload, inputs)` returns the outputs. With an argument `data` it
            is given the delegate's named data, bytes by key; with `compile_specs` those.
        models: Models of the author's own, and the arguments of each call of them.
        scoreboard: Where the results are written, as JSON.
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
        """The plugin, a new one each time."""
        raise NotImplementedError("give your plugin with a fixture `plugin`, or return it in make")

    @pytest.fixture
    def plugin(self) -> object:
        """The plugin; each check looks at copies of it."""
        return self.make()

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    def test_contract(self, check: Check, plugin: object) -> None:
        """A part of the contract."""

        def fresh() -> object:
            return plugin if isinstance(plugin, ModuleType) else copy.deepcopy(plugin)

        subject = Subject(fresh, self.requirements, self.simulators, self.models)
        result = result_of(check, subject, self._results)
        self._results.append(result)
        if self.scoreboard is not None:
            asked = self.requirements.opt_outs
            board = Scoreboard(subject.name, tuple(self._results), asked)
            write_text(Path(self.scoreboard), board.to_json())
        if result.outcome == "skipped":
            pytest.skip(result.text)
        if result.outcome == "broken":
            pytest.fail(result.text, pytrace=False)

    def test_nothing_is_left_out(self) -> None:
        """The requirements are the usual ones; skipped with the others, for the report."""
        if self.requirements.opt_outs:
            pytest.skip(f"asked for less: {', '.join(self.requirements.opt_outs)}")
