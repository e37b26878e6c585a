"""Real models for the tests, made from a config alone, weights random but the same each time."""

from __future__ import annotations

import copy
import functools
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
    layers = nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.LayerNorm(256), nn.Linear(256, 4))
    return layers.eval(), (torch.randn(2, 8),)


def mobilenet() -> Model:
    """MobileNetV2 with random weights."""
    from transformers import MobileNetV2Config, MobileNetV2Model

    torch.manual_seed(0)
    # With the default range the activations fade to 1e-29, and any output would do.
    config = MobileNetV2Config(image_size=96, depth_multiplier=0.5, initializer_range=0.18)
    model = MobileNetV2Model(config).eval()
    return Only(model, "last_hidden_state"), (torch.randn(1, 3, 96, 96),)


def llama(layers: int = 2) -> Model:
    """A small Llama with random weights."""
    model = llama_of(layers, context=64)
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


def cached_llama(layers: int = 2, context: int = 32) -> Model:
    """A small Llama decoding one token at a position of its KV cache, random weights."""
    return CachedLlama(llama_of(layers, context), context), (torch.tensor([[7]]), torch.tensor([0]))


def llama_of(layers: int, context: int, **options: Any) -> Any:
    """Return transformers' Llama with random weights; options are those of its config."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    small = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 256}
    small |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    lengths = {"num_hidden_layers": layers, "max_position_embeddings": context}
    return LlamaForCausalLM(LlamaConfig(**{**small, **options}, **lengths)).eval()


class CachedLlama(nn.Module):
    """A Llama whose static KV cache is in buffers, as torch.export needs it."""

    def __init__(self, model: Any, context: int) -> None:
        super().__init__()
        from transformers import StaticCache

        config = model.config
        self.model, self.cache = model, StaticCache(config=config, max_cache_len=context)
        heads, width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        self.cache.early_initialization(1, heads, width, torch.float32, torch.device("cpu"))
        for index, layer in enumerate(self.cache.layers):
            self.register_buffer(f"keys_{index}", layer.keys)
            self.register_buffer(f"values_{index}", layer.values)

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.cache.layers):
            layer.keys = getattr(self, f"keys_{index}")
            layer.values = getattr(self, f"values_{index}")
            layer.cumulative_length = position.reshape(layer.cumulative_length.shape).clone()
        return self.model(
            input_ids=token,
            position_ids=position[None],
            past_key_values=self.cache,
            use_cache=True,
        ).logits


def resnet18(image: int = 64) -> Model:
    """ResNet-18 with random weights."""
    from transformers import ResNetConfig, ResNetModel

    torch.manual_seed(0)
    config = ResNetConfig(
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
    )
    model = ResNetModel(config).eval()
    return Only(model, "pooler_output"), (torch.randn(1, 3, image, image),)


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
    torch.manual_seed(0)
    module, inputs = _quantised_conv_net()
    return copy.deepcopy(module), inputs


@functools.cache
def _quantised_conv_net() -> Model:
    """The same, made once, since PT2E takes two seconds for it."""
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


def vit(layers: int = 6) -> Model:
    """A vision transformer with random weights."""
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=192,
        intermediate_size=768,
        num_hidden_layers=layers,
        num_attention_heads=3,
        image_size=224,
    )
    return Only(ViTModel(config).eval(), "last_hidden_state"), (torch.randn(1, 3, 224, 224),)


def convnext() -> Model:
    """A small ConvNeXt with random weights."""
    from transformers import ConvNextConfig, ConvNextModel

    torch.manual_seed(0)
    config = ConvNextConfig(hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 6, 2], image_size=96)
    return Only(ConvNextModel(config).eval(), "last_hidden_state"), (torch.randn(1, 3, 96, 96),)


class Recurrent(nn.Module):
    """A GRU over a sequence, and a linear layer of its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(x)[0][:, -1])


def gru() -> Model:
    """A GRU over 16 steps."""
    torch.manual_seed(0)
    return Recurrent().eval(), (torch.randn(1, 16, 32),)


class Hybrid(nn.Module):
    """Convolutions, then attention between the places of the image, then a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.SiLU()),
            *(nn.Conv2d(32, 32, 3, 1, 1, groups=32), nn.Conv2d(32, 64, 1), nn.GELU()),
            *(nn.Conv2d(64, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.SiLU()),
        )
        self.attention = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.attention(places).mean(1))


def hybrid() -> Model:
    """A network of convolutions and attention, random weights."""
    torch.manual_seed(0)
    return Hybrid().eval(), (torch.randn(1, 3, 64, 64),)
