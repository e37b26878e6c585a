"""Execution: a lowered program is run in ExecuTorch's runtime and compared with eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from executorch.runtime import Runtime
from torch.utils import _pytree as pytree

from etdev.lowered import Lowered


def can_run(lowered: Lowered) -> bool:
    """Whether this machine's runtime has every backend of the plan."""
    backends = Runtime.get().backend_registry
    return all(backends.is_available(p.backend_id) for p in lowered.plan.partitions)


def assert_eager(
    lowered: Lowered, model: torch.nn.Module, calls: Sequence[Sequence[Any]], tolerance: float
) -> None:
    """Each call gives what eager PyTorch gives; state is carried on from call to call."""
    # The runtime reads the bytes as long as the program lives.
    buffer = lowered.to_executorch().buffer
    method = Runtime.get().load_program(buffer).load_method("forward")
    assert method is not None
    for step, inputs in enumerate(calls, 1):
        outputs = [copy.deepcopy(value) for value in method.execute(list(inputs))]
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
