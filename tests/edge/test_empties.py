"""Constants without elements, which ExecuTorch's runtime can't load, are made by the program."""

import pytest
import torch
from models.small import Function
from torch import nn
from toys.runtime import assert_agrees

from etdev import Lowerer

X = torch.ones(3, 4)


class Grown(nn.Module):
    """Rows that nothing has been added to yet, read twice and returned."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.empty(0, 4))
        self.register_buffer("unread", torch.empty(2, 0))

    def forward(self, x):
        return torch.cat([x, self.rows]) * 2, torch.cat([self.rows, x]), self.rows


@pytest.mark.parametrize("plugins", [[], ["cpu"]])
@pytest.mark.parametrize(
    "module",
    [
        Grown(),
        Function(lambda x: torch.cat([x.flatten().long(), torch.tensor([], dtype=torch.int64)])),
        nn.Sequential(nn.Linear(4, 0), nn.Linear(0, 2)),
    ],
)
def test_they_are_as_in_eager(module, plugins):
    assert_agrees(Lowerer(plugins).lower(module, (X,)), module, (X,), (X * 3,))
