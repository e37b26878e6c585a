"""Programs that come with a delegate of XNNPACK, made before anything is lowered."""

from __future__ import annotations

import torch
from executorch.backends.xnnpack.partition.config.gemm_configs import LinearConfig
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.exir.backend.backend_api import to_backend
from torch import nn
from torch.export import ExportedProgram

X = torch.linspace(-2, 2, 16).reshape(4, 4)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + self.weight


class Product(nn.Module):
    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * weight


class Outer(nn.Module):
    """Calls a module that was lowered by itself; the call has a single output and no getitem."""

    def __init__(self) -> None:
        super().__init__()
        # Before the lowering, whose first run in a process draws random numbers.
        self.linear, inner = nn.Linear(4, 4), Inner()
        program = to_edge(torch.export.export(inner, (X,))).exported_program()
        self.delegate = to_backend("XnnpackBackend", program, [])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.delegate(x + 1)) - 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.norm(self.linear(x)) * 2) + x


class Passed(nn.Module):
    """Its delegate gets its weight from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))
        example = to_edge(torch.export.export(Product(), (X, X))).exported_program()
        self.delegate = to_backend("XnnpackBackend", example, [])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.delegate(x + 1, self.weight) + 1


def outer() -> nn.Module:
    torch.manual_seed(0)
    return Outer().eval()


def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


def reexported() -> ExportedProgram:
    """A module lowered by itself, called by another one and exported again with it."""
    return torch.export.export(outer(), (X,))


def partly_lowered() -> ExportedProgram:
    """An edge program whose linear layer is a delegate of ExecuTorch's own making."""
    partitioner = XnnpackPartitioner(configs=[LinearConfig])
    program = torch.export.export(net(), (X,))
    return to_edge_transform_and_lower(program, partitioner=[partitioner]).exported_program()


def passed() -> ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(Passed().eval(), (X,))
