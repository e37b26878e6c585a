"""Programs that several files here run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.models.small import Function
from support.toys.accelerator import Accelerator

from etdev import Device, Lowerer


class Mixed(torch.nn.Module):
    """Inputs of several kinds: floats, an index, a number."""

    def forward(self, table: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
        return table[index] * count


@pytest.fixture(scope="session")
def mixed_pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Portable kernels only."""
    inputs = (torch.ones(5, 3), torch.tensor([1, 4]), 2)
    lowered = Lowerer([]).lower(Mixed(), inputs)
    return lowered.save(tmp_path_factory.mktemp("mixed") / "mixed.pte")


@pytest.fixture(scope="session")
def on_cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A delegate on cuda:0 whose backend no runtime has."""
    plugin = Accelerator(ops=("add.Tensor",), device=Device("cuda", 0))
    lowered = Lowerer([plugin]).lower(Function(torch.add), (torch.ones(2, 2), torch.ones(2, 2)))
    return lowered.save(tmp_path_factory.mktemp("cuda") / "cuda.pte")
