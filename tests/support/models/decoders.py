"""Models with control flow, caches and shared constants, small enough to be counted by hand.

No branch has a number in it, and no op reads what map and scan stack: AOTInductor can't.
"""

from __future__ import annotations

import torch
from torch import nn
from torch._higher_order_ops.map import map as hop_map
from torch._higher_order_ops.scan import scan

Model = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Attention(nn.Module):
    """A transformer block with scaled_dot_product_attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).view(1, 4, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(attended.transpose(1, 2).reshape(1, 4, 16))


class CachedDecoder(nn.Module):
    """One attention head over a cache that it writes at a given position."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.register_buffer("keys", torch.zeros(6, 8))
        self.register_buffer("values", torch.zeros(6, 8))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(0, position, self.key(x))
        self.values.index_copy_(0, position, self.value(x))
        return torch.softmax(self.query(x) @ self.keys.T, -1) @ self.values


class Cond(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.sin() + a, lambda a: a.cos() * a, (x,)) * 3


class WhileLoop(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def more(i: torch.Tensor, end: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
            return i < end

        def step(i: torch.Tensor, end: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return i + i, end.clone(), a + a

        one, end = (torch.full((), number, dtype=torch.int64) for number in (1, 8))
        return torch._higher_order_ops.while_loop(more, step, (one, end, x))[2] + 1


class Map(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return hop_map(lambda a: a.sin() + a, x * 2)


class Scan(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(carry: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return carry + a, carry + carry

        return scan(step, torch.zeros(4), x * 2, dim=0)[1]


class SharedConstant(nn.Module):
    """A buffer read on both sides of a cosine, and one that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shared", torch.full((3, 4), 2.0))
        self.register_buffer("unused", torch.zeros(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.shared).cos() * self.shared


def attention() -> Model:
    return Attention().eval(), (torch.randn(1, 4, 16),)


def cached_decoder() -> Model:
    return CachedDecoder().eval(), (torch.randn(1, 8), torch.tensor([2]))


def cond() -> Model:
    return Cond(), (torch.randn(3, 4),)


def while_loop() -> Model:
    return WhileLoop(), (torch.randn(3, 4),)


def mapped() -> Model:
    return Map(), (torch.randn(3, 4),)


def scanned() -> Model:
    return Scan(), (torch.randn(3, 4),)


def shared_constant() -> Model:
    return SharedConstant(), (torch.randn(3, 4),)
