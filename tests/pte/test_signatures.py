"""Signatures while a program is emitted: cached, and ordinary again afterwards."""

import copy

import pytest
import torch
from executorch.exir.pass_base import PassResult
from models import nets
from models.small import Buffers
from torch.export import ExportGraphSignature

from etdev import Lowerer
from etdev.pte.signatures import CachingSignatures, cached


def asked(count, monkeypatch):
    """How often emission makes the mapping of a model with so many buffers."""
    lowered = Lowerer([]).lower(Buffers(count), (torch.ones(2),))
    calls = []
    read = ExportGraphSignature.inputs_to_buffers.fget
    with monkeypatch.context() as patch:
        mapping = property(lambda owner: calls.append(None) or read(owner))
        patch.setattr(ExportGraphSignature, "inputs_to_buffers", mapping)
        lowered.to_executorch()
    return len(calls)


def test_emission_makes_a_mapping_as_often_whatever_the_number_of_inputs(monkeypatch):
    assert asked(20, monkeypatch) == asked(40, monkeypatch)


@pytest.mark.parametrize(
    "name", ["mlp", "conv_net", pytest.param("cached_llama", marks=pytest.mark.suite)]
)
def test_the_program_is_that_of_ordinary_signatures(name, monkeypatch):
    model = getattr(nets, name)()
    lowered = Lowerer(["cpu"]).lower(*model)
    ours = lowered.to_executorch()
    monkeypatch.setattr(
        CachingSignatures, "__call__", lambda self, module: PassResult(module, False)
    )
    assert lowered.to_executorch().buffer == ours.buffer
    signature = ours.exported_program().graph_signature
    assert type(signature) is ExportGraphSignature
    assert vars(signature).keys() == {"input_specs", "output_specs"}


def test_a_cached_signature_is_copied_as_an_ordinary_one():
    signature = cached(
        Lowerer([]).lower(Buffers(2), (torch.ones(2),)).edge.exported_program().graph_signature
    )
    assert signature.inputs_to_buffers
    copied = copy.deepcopy(signature)
    assert type(copied) is ExportGraphSignature
    assert copied.inputs_to_buffers == signature.inputs_to_buffers
