"""Nets of several precisions, quantised as users do it, by torchao and by PT2E."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import nn
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

_NOTE = "quantization_annotation"


class Island(nn.Module):
    """Convolutions and a sum between a tanh and a sine."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x)
        x = torch.relu(self.second(torch.relu(self.first(x))) + x)
        return torch.sin(x)


class Words(nn.Module):
    """Linear layers of a table of words, between float ops."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.up, self.down = nn.Embedding(9, 32), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.words(words))
        return torch.sin(x + self.down(torch.tanh(self.up(x))))


class Cast(nn.Module):
    """A linear layer in another dtype between float32 values."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.layer = dtype, nn.Linear(4, 4).to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(self.layer(torch.tanh(x).to(self.dtype)).to(x.dtype))


class Partly(XNNPACKQuantizer):
    """XNNPACK's quantiser for the ops that a function names, and for no other."""

    def __init__(self, chosen: Callable[[torch.fx.Node], bool]) -> None:
        super().__init__()
        self.chosen = chosen
        self.set_global(get_symmetric_quantization_config(is_per_channel=True))

    def annotate(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
        model = super().annotate(model)
        for node in model.graph.nodes:
            if not self.chosen(node):
                node.meta.pop(_NOTE, None)
        return model


def island(*left_out: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the island in static int8, but for ops with these names in theirs."""
    torch.manual_seed(0)
    return static_int8(Island().eval(), (torch.randn(1, 4, 8, 8),), *left_out)


def static_int8(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], *left_out: str
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a net in static int8, calibrated on random numbers, but for ops of these names."""
    quantiser = Partly(lambda node: not any(name in node.name for name in left_out))
    module = prepare_pt2e(torch.export.export(module, inputs).module(), quantiser)
    for seed in range(3):
        numbers = torch.Generator().manual_seed(seed)
        module(*(torch.randn(value.shape, generator=numbers) for value in inputs))
    return convert_pt2e(module), inputs


def words() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the linear layers in torchao's 8da4w."""
    torch.manual_seed(0)
    module: Any = Words().eval()
    four: Any = torch.int4
    scheme = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=four, weight_granularity=PerGroup(32)
    )
    quantize_(module, scheme)
    return module, (torch.arange(6)[None],)
