"""Memory planning: the caller's settings hold."""

import dataclasses

import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from support.models.small import Function
from support.toys.runtime import assert_agrees
from torch import nn
from torch.export import Dim

from etdev import Lowerer


def test_the_settings_of_the_callers_pass_hold():
    inner = MemoryPlanningPass(alloc_graph_input=False)
    config = ExecutorchBackendConfig(memory_planning_pass={"forward": inner})
    lowered = Lowerer([]).lower(nn.ReLU(), (torch.ones(2),))
    (method,) = lowered.to_executorch(config).executorch_program.execution_plan
    given = method.values[method.inputs[0]].val.allocation_info
    assert given is None
    assert dataclasses.asdict(config)["memory_planning_pass"]


def test_a_view_may_have_a_larger_bound_than_its_source():
    def restored(x):
        batch, size = x.shape[0], x.shape[1]
        return x.flatten(0, 2).sin().view(batch, size, size, 4).sum((1, 2))

    calls = [(torch.randn(batch, size, size, 4),) for batch, size in ((2, 3), (4, 8), (1, 2))]
    size = Dim("size", min=2, max=8)
    shapes = (({0: Dim("batch", max=4), 1: size, 2: size},),)
    module = Function(restored)
    assert_agrees(Lowerer([]).lower(module, calls[0], dynamic_shapes=shapes), module, *calls)
