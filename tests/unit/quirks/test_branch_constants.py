"""Branches that hold tensors of their own, and bodies that view what they are given."""

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner
from executorch.runtime import Runtime
from support.models.small import Function
from torch import cond
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan

import etdev
from etdev import Lowerer
from etdev.errors import LoweringError

pytestmark = pytest.mark.usefixtures("quick_conversion")

X = torch.tensor([[0.5, -1.0], [2.0, 3.0]])


def literals(x):
    def inner(x):
        return cond(x.max() > 2, lambda x: x + torch.tensor([1.0, 2.0]), lambda x: x * 3, (x,))

    y = cond(x.sum() > 0, inner, lambda x: x * torch.tensor(2), (x,))
    rows = mapped(lambda row: row - torch.tensor([3.0, 4.0]), y)
    return scan(lambda c, row: (c + row, c * torch.tensor(0.5)), torch.ones(2), rows, dim=0)


def views(x):
    seen = (x[0] * 2).view(2, 1)
    rows = mapped(lambda row: row + seen.view(2), x)
    return rows, *scan(lambda c, row: (c + row, c.view(2, 1) * 2), torch.ones(2), x, dim=0)


def carried(x):
    return scan(lambda c, row: (c + row, c.view(2, 1) * 2), torch.ones(2), x, dim=0)


@pytest.mark.parametrize("function", [literals, views, carried])
def test_bodies_compute_what_pytorch_computes(function):
    lowered = Lowerer(["cpu"]).lower(Function(function), (X,))
    assert lowered.verify([(X,), (-X,), (X * 0.1,)]).calls == 3


def test_a_view_that_executorch_would_read_elsewhere_is_copied_or_refused():
    program = torch.export.export(Function(views), (X,))
    if not hasattr(Partitioner, "transform_for_pre_decomposition"):
        with pytest.raises(LoweringError, match="in the wrong place, which the body of a map or"):
            to_edge_transform_and_lower(program, partitioner=[etdev.partitioner([])])
        return
    manager = to_edge_transform_and_lower(program, partitioner=[etdev.partitioner([])])
    buffer = manager.to_executorch().buffer
    method = Runtime.get().load_program(buffer).load_method("forward")
    for output, expected in zip(method.execute([X]), views(X), strict=True):
        torch.testing.assert_close(output, expected)


def test_tensors_of_branches_pass_the_partitioner():
    def function(x):
        return cond(x.sum() > 0, lambda x: x + torch.tensor([1.0, 2.0]), lambda x: x * 2, (x,))

    program = torch.export.export(Function(function), (X,))
    if not hasattr(Partitioner, "transform_for_pre_decomposition"):
        # ExecuTorch 1.4 has torch decompose it before it asks a partitioner anything.
        with pytest.raises(RuntimeError, match="FunctionalTensor on its own"):
            to_edge_transform_and_lower(program, partitioner=[etdev.partitioner([])])
        return
    to_edge_transform_and_lower(program, partitioner=[etdev.partitioner([])]).to_executorch()
