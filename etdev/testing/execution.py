"""Execution: a lowered program is run, and compared with eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from executorch.runtime import Runtime
from torch.utils import _pytree as pytree

from etdev.lowered import Lowered
from etdev.testing.fakes import FAKE
from etdev.testing.simulation import Simulation, Simulator

Run = Callable[[Sequence[Any]], Sequence[Any]]


def runner(lowered: Lowered, simulators: Mapping[str, Simulator]) -> tuple[Run | None, str]:
    """What runs a lowered program, its state carried on from call to call.

    Args:
        lowered: What was lowered.
        simulators: What runs the payloads of backends that ExecuTorch's runtime does not have.

    Returns:
        The runner, and the backends that it simulates; None, and the backends that nothing runs.
    """
    backends = {partition.backend_id for partition in lowered.plan.partitions}
    known = Runtime.get().backend_registry
    absent = sorted(backend for backend in backends if not known.is_available(backend))
    if not absent:
        return _in_the_runtime(lowered), ""
    # A program runs in one place or in the other.
    if unknown := sorted(backends - simulators.keys() - {FAKE}):
        return None, ", ".join(unknown)
    simulation = Simulation.of(lowered, simulators)
    simulated = [backend for backend in absent if backend != FAKE]
    return lambda inputs: simulation(*inputs), ", ".join(simulated)


def _in_the_runtime(lowered: Lowered) -> Run:
    buffer = lowered.to_executorch().buffer
    method = Runtime.get().load_program(buffer).load_method("forward")
    assert method is not None

    def run(inputs: Sequence[Any]) -> Sequence[Any]:
        # The runtime reads the bytes as long as the program lives.
        assert buffer
        outputs: Sequence[Any] = method.execute(list(inputs))
        return outputs

    return run


def assert_eager(
    run: Run, model: torch.nn.Module, calls: Sequence[Sequence[Any]], tolerance: float
) -> None:
    """Each call gives what eager PyTorch gives; state is carried on from call to call."""
    for step, inputs in enumerate(calls, 1):
        outputs = [copy.deepcopy(value) for value in run(inputs)]
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*inputs))
        for output, value in zip(outputs, expected, strict=True):
            scale = float(value[value.isfinite()].abs().max()) if value.isfinite().any() else 1.0
            try:
                torch.testing.assert_close(
                    output, value, rtol=0, atol=tolerance * max(scale, 1.0), equal_nan=True
                )
            except AssertionError as error:
                raise AssertionError(f"step {step}: {' '.join(str(error).split())}") from None
