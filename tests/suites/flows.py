"""A pytest plugin: flows of etdev for ExecuTorch's operator suite, next to its own path to XNNPACK.

`-p suites.flows`, with the folder of the suite's tests. Each outcome is a line of JSON in the file
that ETDEV_OUTCOMES names.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from executorch.backends.test.harness.stages import StageType, ToExecutorch
from executorch.backends.test.harness.stages.stage import Stage
from executorch.backends.test.suite import flow as suite
from executorch.backends.test.suite import reporting, runner
from executorch.backends.test.suite.flow import TestFlow
from executorch.backends.xnnpack.test.tester import Tester, ToEdgeTransformAndLower

import etdev
from etdev import Lowerer
from etdev.errors import EtdevError
from etdev.upstream.shortcuts.decompositions import quick_decompositions

SEED = 0
# Theirs is 0.1 and 0.04.
TOLERANCE = 1e-4


class Lower(Stage):
    """`Lowerer.lower`, where ExecuTorch's testers call `to_edge_transform_and_lower`."""

    def __init__(self, plugins: Sequence[str]) -> None:
        self.lowerer = Lowerer(plugins, strict=True)

    def stage_type(self) -> StageType:
        return StageType.TO_EDGE_TRANSFORM_AND_LOWER

    def run(self, artifact, inputs=None, generate_etrecord=False) -> None:
        self.lowered = self.lowerer.lower(artifact)
        self.edge = self.lowered.edge
        # The suite counts the ops that are delegated.
        before = self.lowered.lowering.programs["forward"]
        self.edge._etrecord = SimpleNamespace(edge_dialect_program=before)

    @property
    def artifact(self):
        return self.edge

    @property
    def graph_module(self):
        return self.edge.exported_program().graph_module


class Emit(ToExecutorch):
    """`Lowered.to_executorch`, which also holds what comes out against the plan."""

    def __init__(self, lowered) -> None:
        super().__init__()
        self.lowered = lowered

    def run(self, artifact, inputs=None) -> None:
        self.executorch_program = self.lowered.to_executorch(self.config)


class CloseTester(Tester):
    """Their tester with our tolerance."""

    def run_method_and_compare_outputs(self, *args, atol=0.0, rtol=0.0, **kwargs):
        return super().run_method_and_compare_outputs(
            *args, atol=TOLERANCE, rtol=TOLERANCE, **kwargs
        )


def host(plugins: Sequence[str]) -> Callable[..., Tester]:
    """A tester that lowers with these plugins."""

    class HostTester(CloseTester):
        def to_edge_transform_and_lower(self, stage=None, generate_etrecord=False):
            return super().to_edge_transform_and_lower(stage or Lower(plugins), generate_etrecord)

        def to_executorch(self, stage=None):
            lowered = self.stages[StageType.TO_EDGE_TRANSFORM_AND_LOWER].lowered
            return super().to_executorch(stage or Emit(lowered))

    return HostTester


def composed(plugins: Sequence[str]) -> Callable[..., Tester]:
    """A tester whose calls are ExecuTorch's own, with `etdev.partitioner()`."""

    class ComposedTester(CloseTester):
        def to_edge_transform_and_lower(self, stage=None, generate_etrecord=False):
            stage = stage or ToEdgeTransformAndLower([etdev.partitioner(plugins)])
            return super().to_edge_transform_and_lower(stage, generate_etrecord)

    return ComposedTester


# Theirs and ours. All run what they don't delegate, which the suite's own flows take for passed.
# Those skip ops that portable kernels lack; the host refuses them by name.
FLOWS = {
    "executorch": CloseTester,
    "etdev_cpu": host(["cpu"]),
    "etdev_openvino_cpu": host(["openvino", "cpu"]),
    "etdev_cpu_openvino": host(["cpu", "openvino"]),
    "etdev_partitioner": composed(["cpu"]),
}
SKIPS_NOTHING = ("etdev_cpu", "etdev_openvino_cpu", "etdev_cpu_openvino")


def chosen() -> dict[str, TestFlow]:
    """Only these, where ExecuTorch would list its own."""
    return {name: TestFlow(name, name, FLOWS[name], is_delegated=False) for name in FLOWS}


suite.all_flows = chosen


@contextlib.contextmanager
def nothing_skipped() -> Iterator[None]:
    """Have the suite run ops that it skips for want of a portable kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "UNSUPPORTED_PORTABLE_OPS", set())
        patch.setattr(runner, "_graph_has_unsupported_patterns", lambda program: False)
        yield


def recorded(call: Callable[..., Any]) -> Callable[..., Any]:
    """The suite's `run_test`, with a line for each outcome."""

    def run_test(model, inputs, flow, *args, **kwargs):
        strict = flow.name in SKIPS_NOTHING
        # Their own path is spared the same lists as ours.
        with nothing_skipped() if strict else contextlib.nullcontext(), quick_decompositions():
            summary = call(model, inputs, flow, *args, **kwargs)
        error = summary.error
        line = {
            "test": summary.base_name,
            "id": summary.name,
            "subtest": summary.subtest_index,
            "flow": summary.flow,
            "result": summary.result.name,
            "refused": isinstance(error, EtdevError),
            "error": f"{type(error).__name__}: {error}"[:2000] if error else None,
            "delegated": summary.is_delegated(),
            "seconds": summary.lower_time.total_seconds() if summary.lower_time else None,
        }
        with Path(os.environ["ETDEV_OUTCOMES"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return summary

    return run_test


runner.run_test = recorded(runner.run_test)


def pytest_configure(config: pytest.Config) -> None:
    reporting.begin_test_session(None, seed=SEED)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Models are built with random weights before the suite seeds anything."""
    torch.manual_seed(SEED)
