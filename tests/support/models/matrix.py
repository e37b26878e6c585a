"""The models of the matrix: what is exported, what is run, and what eager PyTorch says to it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import field, frozen
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional

from support.models import minilm, nets

Inputs = tuple[torch.Tensor, ...]


@frozen(eq=False)
class Case:
    """One model and the calls to make of it, in their order.

    Args:
        programs: Its methods, exported.
        eager: The same in eager PyTorch, afresh, since some keep state.
        calls: Method and inputs of each call.
        tolerance: Largest error in float32, as a part of eager's largest value.
    """

    programs: Mapping[str, ExportedProgram]
    eager: Callable[[], Mapping[str, Callable[..., Any]]]
    calls: Sequence[tuple[str, Inputs]]
    tolerance: float = field(default=1e-5, kw_only=True)

    @property
    def constant_bytes(self) -> int:
        """Bytes of parameters, buffers and other constants, each counted once."""
        tensors = [
            value
            for program in self.programs.values()
            for value in (*program.state_dict.values(), *program.constants.values())
            if isinstance(value, torch.Tensor)
        ]
        return sum({t.data_ptr(): t.numel() * t.element_size() for t in tensors}.values())


def one(module: nn.Module, *runs: Inputs, dynamic_shapes: Any = None, **options: Any) -> Case:
    """A module with the single method forward, run on each of some inputs."""
    # Control flow and mutated buffers can't be exported with gradients.
    with torch.no_grad():
        program = torch.export.export(module, runs[0], dynamic_shapes=dynamic_shapes)
    return Case(
        {"forward": program},
        lambda: {"forward": copy.deepcopy(module)},
        [("forward", inputs) for inputs in runs],
        **options,
    )


class Block(nn.Module):
    """A transformer block: attention and a feed-forward net, each behind a norm."""

    def __init__(self, size: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.feed = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = (*x.shape[:2], self.heads, -1)
        q, k, v = (
            part.reshape(split).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + self.out(mixed.reshape(x.shape))
        return x + self.feed(self.norms[1](x))


class Tied(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 32)
        self.norm = nn.LayerNorm(32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(torch.tanh(self.embedding(tokens)))
        return functional.linear(hidden, self.embedding.weight)


class Decoder(nn.Module):
    """One token at a time, attending to a cache of those before it."""

    def __init__(self, size: int = 16, length: int = 8) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(size, size) for _ in range(3))
        self.norm = nn.LayerNorm(size)
        self.register_buffer("keys", torch.zeros(length, size))
        self.register_buffer("values", torch.zeros(length, size))
        self.register_buffer("positions", torch.arange(length))

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(token)
        self.keys.index_copy_(0, position, self.k(hidden))
        self.values.index_copy_(0, position, self.v(hidden))
        scores = self.q(hidden) @ self.keys.T
        scores = scores.masked_fill(self.positions > position, -1e9)
        return token + torch.softmax(scores, -1) @ self.values


class Cond(nn.Module):
    """A branch that depends on the input's sum."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.branch = nn.Linear(8, 8), nn.Linear(8, 8)
        self.after = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.before(x))
        taken = torch.cond(x.sum() > 0, lambda h: self.branch(h), lambda h: h * 2, (hidden,))
        return torch.softmax(self.after(taken), -1)


class Map(nn.Module):
    """The same for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.map import map as each

        hidden = torch.tanh(self.before(x))
        rows = each(lambda row, bias: row * 2 + bias, hidden, self.before.bias)
        return torch.softmax(self.after(rows), -1)


class While(nn.Module):
    """Steps until a counter is done."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.while_loop import while_loop

        hidden = torch.tanh(self.before(x))
        _, hidden = while_loop(
            lambda left, h: left > 0,
            lambda left, h: (left - 1, h * 0.5 + 1),
            (steps, hidden),
        )
        return torch.softmax(self.after(hidden), -1)


class Pair(nn.Module):
    """An encoder, and a score that encodes first."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(x)

    def score(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.encoder(x) @ self.encoder(y).T, -1)


class Method(nn.Module):
    """One method of a module, as torch.export takes it."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module, self.name = module, name

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return getattr(self.module, self.name)(*inputs)


def mlp() -> Case:
    module, inputs = nets.mlp()
    return one(module, inputs)


def conv_net() -> Case:
    module, inputs = nets.conv_net()
    return one(module, inputs)


def transformer_block() -> Case:
    return _seeded(lambda: one(Block().eval(), (torch.randn(2, 6, 32),)))


def tied_embedding() -> Case:
    return _seeded(lambda: one(Tied().eval(), (torch.randint(0, 256, (1, 5)),)))


def kv_cache() -> Case:
    steps = [(torch.randn(1, 16), torch.tensor([position])) for position in range(5)]
    return _seeded(lambda: one(Decoder().eval(), *steps))


def cond() -> Case:
    x = torch.rand(2, 8)
    return _seeded(lambda: one(Cond().eval(), (x,), (-x,)))


def map_rows() -> Case:
    return _seeded(lambda: one(Map().eval(), (torch.randn(3, 8),)))


def while_loop() -> Case:
    runs = [(torch.ones(2, 8), torch.tensor(steps)) for steps in (0, 1, 4)]
    return _seeded(lambda: one(While().eval(), *runs))


def dynamic_batch() -> Case:
    module, _ = nets.mlp()
    runs = [(torch.randn(rows, 8),) for rows in (4, 1, 8)]
    return one(module, *runs, dynamic_shapes=({0: Dim("batch", min=1, max=8)},))


def dynamic_attention() -> Case:
    shapes = ({0: Dim("batch", max=8)},)
    runs = [(torch.randn(rows, 6, 32),) for rows in (4, 1, 8)]
    return _seeded(lambda: one(Block().eval(), *runs, dynamic_shapes=shapes))


def two_methods() -> Case:
    torch.manual_seed(0)
    pair, x, y = Pair().eval(), torch.randn(4, 64), torch.randn(4, 64)
    with torch.no_grad():
        programs = {
            "encode": torch.export.export(pair, (x,)),
            "score": torch.export.export(Method(pair, "score").eval(), (x, y)),
        }
    eager = {"encode": pair, "score": pair.score}
    return Case(programs, lambda: eager, [("encode", (x,)), ("score", (x, y))])


def int8_conv_net() -> Case:
    module, inputs = nets.quantised_conv_net()
    # One step of the last quantiser: a sum that is rounded elsewhere may fall to its other side.
    return one(module, inputs, tolerance=1e-2)


def minilm_l6() -> Case:
    module, inputs = minilm.model()
    return one(module, inputs)


def resnet_18() -> Case:
    return one(*nets.resnet18(), tolerance=1e-4)


def _seeded(make: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return make()


SMALL = {
    make.__name__: make
    for make in (
        *(mlp, conv_net, transformer_block, tied_embedding, kv_cache, cond, map_rows, while_loop),
        *(dynamic_batch, dynamic_attention, two_methods, int8_conv_net),
    )
}
LARGE = {make.__name__: make for make in (minilm_l6, resnet_18)}
