"""ExecuTorch's runtime in the tests: what was lowered is run, and compared with eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import torch
from executorch.exir import EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import LoweredBackendModule, get_lowered_submodules
from executorch.runtime import Runtime
from packaging.version import Version
from torch.export import ExportedProgram

import etdev
from etdev.lowered import Lowered
from etdev.upstream.trees import flat

Inputs = Sequence[Any]
# The wheels before 1.5 are built without it.
WRITES_TRACES = Version(version("executorch")) >= Version("1.5")


def by_partitioner(
    model: Any, inputs: Inputs = (), plugins: Sequence[Any] = (), dynamic_shapes: Any = None
) -> EdgeProgramManager:
    """Lower a model, or its program, in ExecuTorch's own loop, with the composed partitioner."""
    program = model
    if not isinstance(model, ExportedProgram):
        program = torch.export.export(model, tuple(inputs), dynamic_shapes=dynamic_shapes)
    return to_edge_transform_and_lower(program, partitioner=[etdev.partitioner(list(plugins))])


def execute(
    lowered: Lowered | EdgeProgramManager, *calls: Inputs, method: str = "forward"
) -> list[list[Any]]:
    """The outputs of each call of a method, which keeps its state from call to call."""
    # The runtime reads it where it lies, and keeps no reference to it.
    buffer = lowered.to_executorch().buffer
    program = Runtime.get().load_program(buffer)
    loaded = program.load_method(method)
    # The next call writes to the same memory.
    return [[copy.deepcopy(value) for value in loaded.execute(list(inputs))] for inputs in calls]


def assert_agrees(
    lowered: Lowered | EdgeProgramManager,
    eager: Any,
    *calls: Inputs,
    method: str = "forward",
    tolerance: float = 1e-5,
) -> None:
    """Each call gives what eager PyTorch gives."""
    for outputs, inputs in zip(execute(lowered, *calls, method=method), calls, strict=True):
        with torch.no_grad():
            results = flat(eager(*inputs))
        for output, expected in zip(outputs, results, strict=True):
            torch.testing.assert_close(output, expected, atol=tolerance, rtol=1e-4, equal_nan=True)


def delegates(manager: EdgeProgramManager, method: str = "forward") -> list[LoweredBackendModule]:
    """The delegates of a method."""
    return [m for _, m, _ in get_lowered_submodules(manager.exported_program(method).graph_module)]
