"""Expansion: pieces of an op that nothing reads are left out, and no plugin is offered them."""

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees

from etdev import Lowerer

pytest.importorskip("openvino", reason="openvino is not installed")

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def unread(lowered):
    nodes = lowered.edge.exported_program().graph.nodes
    return [node.name for node in nodes if node.op == "call_function" and not node.users]


def test_no_delegate_computes_an_output_that_nobody_reads():
    module = Function(lambda x: x.sort(1)[1])
    lowered = Lowerer(["openvino"]).lower(module, (X,))
    assert not unread(lowered)
    assert_agrees(lowered, module, (X,), (-X,))


def test_no_delegate_computes_what_only_an_assertion_reads():
    def encoded(classes):
        return torch.nn.functional.one_hot(classes, 4), classes + 1

    classes = torch.tensor([[1, 2], [3, 0]])
    lowered = Lowerer(["openvino"]).lower(Function(encoded), (classes,))
    assert not unread(lowered)
    assert_agrees(lowered, encoded, (classes,), (classes.flip(0),))
