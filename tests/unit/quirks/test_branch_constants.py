"""Branches that hold tensors of their own, and bodies that view what they are given."""

import pytest
import torch
from executorch.exir.backend.partitioner import Partitioner
from support.models.small import Function
from support.toys.runtime import assert_agrees, by_partitioner
from torch import cond
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan

from etdev.errors import LoweringError

pytestmark = pytest.mark.usefixtures("quick_conversion")

X = torch.tensor([[0.5, -1.0], [2.0, 3.0]])


def views(x):
    seen = (x[0] * 2).view(2, 1)
    rows = mapped(lambda row: row + seen.view(2), x)
    return rows, *scan(lambda c, row: (c + row, c.view(2, 1) * 2), torch.ones(2), x, dim=0)


def test_a_view_that_executorch_would_read_elsewhere_is_copied_or_refused():
    if not hasattr(Partitioner, "transform_for_pre_decomposition"):
        with pytest.raises(LoweringError, match="in the wrong place, which the body of a map or"):
            by_partitioner(Function(views), (X,))
        return
    assert_agrees(by_partitioner(Function(views), (X,)), views, (X,))


def test_tensors_of_branches_pass_the_partitioner():
    def function(x):
        return cond(x.sum() > 0, lambda x: x + torch.tensor([1.0, 2.0]), lambda x: x * 2, (x,))

    if not hasattr(Partitioner, "transform_for_pre_decomposition"):
        # ExecuTorch 1.4 has torch decompose it before it asks a partitioner anything.
        with pytest.raises(RuntimeError, match="FunctionalTensor on its own"):
            by_partitioner(Function(function), (X,))
        return
    by_partitioner(Function(function), (X,)).to_executorch()
