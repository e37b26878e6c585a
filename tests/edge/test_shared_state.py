"""Buffers that two methods have in common."""

import copy

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime
from torch import nn

from etdev import Lowerer
from etdev.errors import EtdevWarning, LoweringError

X = torch.ones(3)


class Sum(nn.Module):
    """What was added so far."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))


class Add(nn.Module):
    def __init__(self, sum):
        super().__init__()
        self.sum = sum

    def forward(self, x):
        self.sum.total.add_(x)
        return self.sum.total + 1


class Read(Add):
    def forward(self, x):
        return self.sum.total * x


def methods(sum, other=None):
    return {"add": (Add(sum), (X,)), "read": (Read(other or sum), (X,))}


def test_state_that_another_method_has_is_named():
    with pytest.warns(EtdevWarning) as caught:
        lowered = Lowerer([]).lower(methods(Sum()))
    (text,) = [str(warning.message) for warning in caught if "buffer" in str(warning.message)]
    assert text.startswith(
        "several methods: 'add' writes buffer 'sum.total', which 'read' has, too; in a .pte each "
        "method has its own, so that 'read' never sees what 'add' writes; "
    )
    program = Runtime.get().load_program(bytes(lowered.to_executorch().buffer))
    add, read = program.load_method("add"), program.load_method("read")
    for call in (1, 2):
        assert torch.equal(add.execute([X])[0], X * (call + 1))
        # As the warning says; in eager PyTorch it would be `call`.
        assert torch.equal(read.execute([X])[0], X * 0)


def test_strict_refuses_it():
    with pytest.raises(LoweringError, match=r"'add' writes buffer 'sum\.total', which 'read' has"):
        Lowerer([], strict=True).plan(methods(Sum()))


@pytest.mark.filterwarnings("error::etdev.EtdevWarning")
def test_state_of_their_own_and_weights_in_common_are_not_named():
    own = Sum()
    Lowerer([]).plan(methods(own, copy.deepcopy(own)))
    Lowerer([]).plan({"read": (Read(own), (X,)), "again": (Read(own), (X,))})


@pytest.mark.filterwarnings("ignore:several methods")
def test_memory_planning_may_share_it():
    shared = MemoryPlanningPass(share_mutable_buffers=True)
    config = ExecutorchBackendConfig(memory_planning_pass=shared)
    program = Lowerer([]).lower(methods(Sum())).to_executorch(config).executorch_program
    for plan in program.execution_plan:
        memory = (getattr(value.val, "allocation_info", None) for value in plan.values)
        assert (2, 0) in {(m.memory_id, m.memory_offset_low) for m in memory if m}
