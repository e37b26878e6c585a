"""Stored tensors: what has no values or is not dense is refused by name; the rest is copied."""

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees, by_partitioner
from torch import nn
from torch._subclasses import FakeTensorMode

from etdev import Lowerer
from etdev.errors import SourceError
from etdev.testing.programs import Layer, X


class Unread(Layer):
    """A buffer on the meta device that nothing reads."""

    def __init__(self):
        super().__init__()
        self.register_buffer("unread", torch.empty(4, device="meta"))


def faked():
    with FakeTensorMode():
        return torch.export.export(Layer(), (torch.randn(2, 4),))


@pytest.mark.parametrize(
    ("model", "inputs", "name"),
    [
        (Layer().to("meta"), (X.to("meta"),), "linear.weight"),
        (Unread(), (X,), "unread"),
        (faked(), None, "linear.weight"),
    ],
    ids=["meta", "unread", "fake"],
)
def test_weights_without_values_are_planned_but_not_compiled(model, inputs, name):
    lowerer = Lowerer(["cpu"])
    with pytest.raises(SourceError) as caught:
        lowerer.lower(model, inputs)
    assert str(caught.value) == (
        f"forward: {name} has no values; make the model outside of FakeTensorMode and of the meta "
        "device"
    )
    assert lowerer.plan(model, inputs)["forward"].partitions


class Sparse(nn.Module):
    """A sparse weight."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x):
        return self.weight @ x.T


@pytest.mark.parametrize(
    ("module", "given", "what"),
    [
        (Sparse(torch.eye(4).to_sparse()), X, "weight has the layout sparse_coo"),
        (Layer(), X.to_sparse(), "input 'x' has the layout sparse_coo"),
    ],
)
def test_what_is_not_dense_is_refused_with_its_layout(module, given, what):
    with pytest.raises(SourceError) as caught:
        Lowerer(["cpu"]).plan(module, (given,))
    cure = "and ExecuTorch has dense tensors only; make it dense, as x.to_dense() does"
    assert str(caught.value) == f"forward: {what}, {cure}"


def test_a_partitioner_refuses_sparse_inputs_too():
    with pytest.raises(SourceError, match=r"^forward: input 'x' has the layout sparse_coo"):
        by_partitioner(Layer(), (X.to_sparse(),), ["cpu"])


def inferred():
    with torch.inference_mode():
        return X + 0


@pytest.mark.parametrize(
    "given",
    [torch._neg_view(X), inferred(), X.clone().requires_grad_()],
    ids=["neg", "inf", "grad"],
)
def test_inputs_that_torch_cannot_trace_are_copied(given):
    module = Layer()
    lowered = Lowerer(["cpu"]).lower(module, (given,))
    assert_agrees(lowered, module, (X,), (X * 2,))


def test_unsigned_integers_that_torch_has_no_minimum_of_are_verified():
    shifted = Function(lambda x: x.view(2, 1))
    Lowerer([]).lower(shifted, (torch.tensor([1, 65535], dtype=torch.uint16),)).verify()
