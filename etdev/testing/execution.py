"""Execution of a lowered program, and comparison with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from executorch.runtime import Runtime

from etdev.files import scratch
from etdev.lowering.lowered import Lowered
from etdev.pte.read import read
from etdev.runtime.compare import Tolerance, mismatch
from etdev.runtime.inputs import method_of
from etdev.runtime.run import run_method
from etdev.testing.fakes import FAKE
from etdev.testing.simulation import Simulation, Simulator
from etdev.upstream.trees import pytree

Calls = Sequence[Sequence[Any]]
# Returns the outputs of each call; state is carried from call to call.
Run = Callable[[Calls], Sequence[Sequence[Any]]]
# A tiny program that takes longer hangs.
_LIMIT_S = 120.0


def runner(lowered: Lowered, simulators: Mapping[str, Simulator]) -> tuple[Run | None, str]:
    """Return a function that runs a lowered program, and the backends that it simulates.

    None and the names of the backends, if any can't be run.
    """
    backends = {partition.backend_id for partition in lowered.plan.partitions}
    known = Runtime.get().backend_registry
    absent = sorted(backend for backend in backends if not known.is_available(backend))
    if not absent:
        return lambda calls: _in_the_runtime(lowered, calls), ""
    if unknown := sorted({*absent} - simulators.keys() - {FAKE}):
        return None, ", ".join(unknown)
    simulation = Simulation.of(lowered, simulators)
    simulated = [backend for backend in absent if backend != FAKE]
    return lambda calls: [simulation(*inputs) for inputs in calls], ", ".join(simulated)


def _in_the_runtime(lowered: Lowered, calls: Calls) -> Sequence[Sequence[Any]]:
    """Run a program in a child process, since a wrong delegate may crash it."""
    with scratch() as folder:
        path = lowered.save(Path(folder) / "net.pte")
        data = next(Path(folder).glob("*.ptd"), None)
        outcome = run_method(path, method_of(read(path), "forward"), calls, data, _LIMIT_S)
    assert outcome.failure is None, f"step {len(outcome.values) + 1}: {outcome.failure}"
    return [call.outputs for call in outcome.values]


def assert_eager(run: Run, model: torch.nn.Module, calls: Calls, tolerance: float) -> None:
    """Assert that each call gives the outputs of eager PyTorch; state is carried on."""
    for step, (inputs, outputs) in enumerate(zip(calls, run(calls), strict=True), 1):
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*inputs))
        problem = mismatch(outputs, expected, Tolerance(tolerance))
        assert not problem, f"step {step}: {problem}"
