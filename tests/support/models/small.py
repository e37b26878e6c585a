"""Modules of a few ops, with their inputs, that many tests lower."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn import functional

PAIR = (torch.randn(2, 4), torch.randn(2, 4))
HEADS = (torch.randn(1, 2, 4, 8),)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Several(nn.Module):
    """Functions with inputs of their own, all in one program.

    Args:
        cases: Each function, and how many of the inputs it takes.
    """

    def __init__(self, cases):
        super().__init__()
        self.cases = cases

    def forward(self, *inputs):
        given = iter(inputs)
        return [function(*islice(given, count)) for function, count in self.cases]


class AddMul(nn.Module):
    """A sum, a product and a sum."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y) * y + x


class Buffers(nn.Module):
    """Sums with so many buffers."""

    def __init__(self, count):
        super().__init__()
        for index in range(count):
            self.register_buffer(f"b{index}", torch.full((2,), float(index)))

    def forward(self, x):
        for buffer in self.buffers():
            x = x + buffer
        return x


class Attention(nn.Module):
    """Attention between an addition and a multiplication; of the query to itself without a key."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        key = query if key is None else key
        mixed = functional.scaled_dot_product_attention(
            query + 1, key, key * 2, attn_mask=mask, **self.options
        )
        return mixed * 2


class Mixed(nn.Module):
    """A convolution and two linear layers with weights of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.block = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x))).mean(1).flatten(1)
        return self.head(self.block(y))

    @classmethod
    def seeded(cls) -> Mixed:
        """Return one with the same weights each time."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return cls().eval()
