"""Buffers that get the value of another one keep it, over several calls."""

import torch
from support.toys.runtime import assert_agrees
from torch import nn

from etdev import Lowerer


class Shifts(nn.Module):
    """Its input has the name of the first one of a Sequential."""

    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.full((4,), 5.0))
        self.register_buffer("two", torch.zeros(4))

    def forward(self, input):
        before = self.two + input
        self.two.copy_(self.one)
        return before


def test_an_input_that_is_called_input_keeps_its_name_where_a_value_is_cloned():
    calls = [(torch.randn(4),) for _ in range(3)]
    assert_agrees(Lowerer([]).lower(Shifts(), calls[0]), Shifts(), *calls)
