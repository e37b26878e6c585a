"""Memory planning: the caller's settings hold."""

import dataclasses

import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from torch import nn

from etdev import Lowerer


def test_the_settings_of_the_callers_pass_hold():
    inner = MemoryPlanningPass(alloc_graph_input=False)
    config = ExecutorchBackendConfig(memory_planning_pass={"forward": inner})
    lowered = Lowerer([]).lower(nn.ReLU(), (torch.ones(2),))
    (method,) = lowered.to_executorch(config).executorch_program.execution_plan
    given = method.values[method.inputs[0]].val.allocation_info
    assert given is None
    assert dataclasses.asdict(config)["memory_planning_pass"]
