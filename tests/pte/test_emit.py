"""Emission: what a kernel of ExecuTorch's would compute otherwise is refused."""

import pytest
import torch
from torch import nn
from toys.runtime import assert_agrees

from etdev import Lowerer
from etdev.errors import LoweringError


class Nonzero(nn.Module):
    def forward(self, x):
        return x.nonzero()


def test_the_positions_in_a_vector_are_right():
    calls = [(torch.tensor([1.0, 0, 2]),), (torch.zeros(3),), (torch.ones(3),)]
    assert_agrees(Lowerer([]).lower(Nonzero(), calls[0]), Nonzero(), *calls)


def test_coordinates_that_would_come_out_transposed_are_refused():
    lowered = Lowerer([]).lower(Nonzero(), (torch.eye(3),))
    with pytest.raises(LoweringError) as caught:
        lowered.to_executorch()
    assert str(caught.value) == (
        "to_executorch: aten_nonzero_default of method 'forward' is the nonzero of a tensor with 2 "
        "dimensions, whose coordinates ExecuTorch's kernel returns in another order; "
        "flatten the tensor first and compute the coordinates from the positions"
    )
