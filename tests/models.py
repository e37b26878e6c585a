"""Real models for the tests, made from a config alone, weights random but the same each time."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

Model = tuple[Any, tuple[Any, ...]]


class Only(nn.Module):
    """A model cut down to one of its outputs, as a .pte returns tensors and not dataclasses."""

    def __init__(self, model: nn.Module, pick: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.pick, self.fixed = model, pick, fixed

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(*inputs, **self.fixed), self.pick)


def mlp() -> Model:
    """Linear, layer norm, linear: a delegate, a portable kernel, a delegate."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4))
    return layers.eval(), (torch.randn(2, 8),)


def mobilenet() -> Model:
    """MobileNetV2 with random weights."""
    from transformers import MobileNetV2Config, MobileNetV2Model

    torch.manual_seed(0)
    config = MobileNetV2Config(image_size=96, depth_multiplier=0.5)
    model = MobileNetV2Model(config).eval()
    return Only(model, "last_hidden_state"), (torch.randn(1, 3, 96, 96),)


def llama(layers: int = 2) -> Model:
    """A small Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=256,
        max_position_embeddings=64,
    )
    model = LlamaForCausalLM(config).eval()
    return Only(model, "logits", use_cache=False), (torch.randint(0, 256, (1, 16)),)


def bert(layers: int = 2) -> Model:
    """A small BERT with random weights."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        vocab_size=256,
    )
    model = BertModel(config).eval()
    return Only(model, "last_hidden_state"), (torch.randint(0, 256, (1, 16)),)


class ConvNet(nn.Module):
    """Two convolutions, batch norm, pooling and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.two = nn.Conv2d(8, 16, 3, stride=2)
        self.head = nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.one(image)))
        hidden = torch.relu(self.two(hidden)) + 1.0
        return self.head(hidden.mean((2, 3)))


def conv_net() -> Model:
    """The convolutional net in float32."""
    torch.manual_seed(0)
    return ConvNet().eval(), (torch.randn(1, 3, 16, 16),)


def quantised_conv_net() -> Model:
    """The convolutional net, statically quantised with PT2E and XNNPACK's quantiser."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    module, inputs = conv_net()
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(module, inputs).module(), quantizer)
    for _ in range(4):
        prepared(torch.randn(1, 3, 16, 16))
    return convert_pt2e(prepared), inputs
