"""Memory planning: what it is asked for once is asked for once, and the program stays the same."""

import dataclasses

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from models import nets
from models.small import Buffers
from torch import nn
from torch.export import ExportGraphSignature

from etdev import Lowerer
from etdev.pte import emit
from etdev.pte.emit import cached


def asked(count, monkeypatch):
    """How often the planning of memory goes through the inputs of a model with so many buffers."""
    calls = []
    read = ExportGraphSignature.inputs_to_buffers.fget
    run = MemoryPlanningPass.run

    def counted(self, module, signature):
        with pytest.MonkeyPatch.context() as patch:
            mapping = property(lambda owner: calls.append(None) or read(owner))
            patch.setattr(ExportGraphSignature, "inputs_to_buffers", mapping)
            return run(self, module, signature)

    monkeypatch.setattr(MemoryPlanningPass, "run", counted)
    Lowerer([]).lower(Buffers(count), (torch.ones(2),)).to_executorch()
    return len(calls)


def test_it_goes_through_the_inputs_as_often_whatever_their_number(monkeypatch):
    assert asked(20, monkeypatch) == asked(40, monkeypatch)


@pytest.mark.parametrize(
    "name", ["mlp", "conv_net", pytest.param("cached_llama", marks=pytest.mark.suite)]
)
def test_the_program_is_that_of_the_pass_by_itself(name, monkeypatch):
    model = getattr(nets, name)()
    ours = Lowerer(["cpu"]).lower(*model).to_executorch().buffer
    monkeypatch.setattr(emit, "cached", lambda signature: signature)
    assert Lowerer(["cpu"]).lower(*model).to_executorch().buffer == ours


def test_the_settings_of_the_callers_pass_hold():
    inner = MemoryPlanningPass(alloc_graph_input=False)
    config = ExecutorchBackendConfig(memory_planning_pass={"forward": inner})
    lowered = Lowerer([]).lower(nn.ReLU(), (torch.ones(2),))
    (method,) = lowered.to_executorch(config).executorch_program.execution_plan
    given = method.values[method.inputs[0]].val.allocation_info
    assert given is None
    assert dataclasses.asdict(config)["memory_planning_pass"]


def test_a_cached_signature_has_the_same_mappings():
    signature = Lowerer([]).lower(*nets.mlp()).edge.exported_program().graph_signature
    for name, member in vars(ExportGraphSignature).items():
        if isinstance(member, property):
            assert getattr(cached(signature), name) == getattr(signature, name)
