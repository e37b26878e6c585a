"""The models whose latency and predicted costs are measured, by kind and name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from attrs import frozen
from support.models import decoders, matrix, minilm, nets
from support.zoo import animals
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional


@frozen(eq=False)
class Sample:
    """A model, the inputs of its calls, and its dynamic shapes as torch.export takes them."""

    module: nn.Module
    inputs: tuple[Any, ...]
    dynamic_shapes: Any = None


class SamePadded(nn.Module):
    """Convolutions with `padding="same"` and an even kernel, as in keyword spotting and EEG."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 32, 4, padding="same")
        self.two = nn.Conv2d(32, 32, 4, padding="same")

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x).relu()).relu()


class TiedHead(nn.Module):
    """Logits as a product with the transposed table of embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8000, 128)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens).relu() @ self.table.weight.t()


class UNet(nn.Module):
    """Two levels of convolutions and group norms with a skip between them."""

    def __init__(self) -> None:
        super().__init__()

        def block(before: int, after: int) -> nn.Module:
            layers = nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU()
            return nn.Sequential(*layers)

        self.down, self.low, self.last = block(3, 16), block(16, 32), block(32, 16)
        self.up, self.head = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.down(x)
        coarse = self.up(self.low(functional.max_pool2d(fine, 2)))
        return self.head(self.last(torch.cat([fine, coarse], 1)))


class Detector(nn.Module):
    """A pyramid of two levels with heads for classes and boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU())
        self.deep = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.SiLU())
        self.side, self.head = nn.Conv2d(32, 16, 1), nn.Conv2d(16, 24, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        fine = self.stem(x)
        coarse = self.side(self.deep(fine))
        merged = fine + functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        found = torch.cat([self.head(level).flatten(2) for level in (merged, coarse)], 2)
        boxes, scores = found.transpose(1, 2).split([4, 20], -1)
        centre, size = boxes.chunk(2, -1)
        return torch.cat([centre - size.exp() / 2, centre + size.exp() / 2], -1), scores.sigmoid()


class Tabular(nn.Module):
    """Embeddings of categories beside numbers, and a small perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(50, 8) for _ in range(4)])
        layers = nn.Linear(48, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 2)
        self.layers = nn.Sequential(*layers)

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        found = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        return self.layers(torch.cat([numbers, *found], 1)).softmax(-1)


class Sounds(nn.Module):
    """An encoder of spectrograms as Whisper's: convolutions over time, then attention."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv1d(40, 64, 3, padding=1), nn.Conv1d(64, 64, 3, 2, 1)
        self.positions = nn.Parameter(torch.randn(50, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.gelu(self.two(functional.gelu(self.one(x))))
        return self.layers(hidden.transpose(1, 2) + self.positions)


class Branches(nn.Module):
    """Linear layers in both branches of a condition."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(256, 256), nn.Linear(256, 256)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda h: self.one(h).relu(), lambda h: self.two(h), (x,))


class Recurrent(nn.Module):
    """An LSTM with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(32, 48, batch_first=True), nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Found(nn.Module):
    """A linear layer on the rows that a condition selects."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[x[:, 0] > 0]).relu()


def gemma() -> nets.Model:
    """A Gemma 3 of four layers, without its cache."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 1000, "head_dim": 64}
    heads = {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1}
    model = Gemma3ForCausalLM(Gemma3TextConfig(**sizes, **heads)).eval()
    return nets.Only(model, "logits", use_cache=False), (torch.randint(0, 1000, (1, 16)),)


def quantised(make: Callable[[], nets.Model], **config: Any) -> nets.Model:
    """Quantise a model with PT2E and XNNPACK's quantiser."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as own
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    module, inputs = make()
    chosen = own.get_symmetric_quantization_config(**config)
    quantizer = own.XNNPACKQuantizer().set_global(chosen)
    prepared = prepare_pt2e(torch.export.export(module, inputs).module(), quantizer)
    for _ in range(2):
        prepared(*inputs)
    return convert_pt2e(prepared), inputs


def plain(make: Callable[[], nn.Module], *sizes: int) -> nets.Model:
    """Return a module with a random input."""
    torch.manual_seed(0)
    return make().eval(), (torch.randn(*sizes),)


def dynamic(make: Callable[[], nets.Model], most: int) -> Sample:
    """Let the first size of the inputs be dynamic; they have two rows at least."""
    module, inputs = make()
    rows = tuple(torch.cat([x, x]) if len(x) == 1 else x for x in inputs)
    batch = Dim("batch", max=most)
    if isinstance(module, nets.Only):
        return Sample(module, rows, (({0: batch},),))
    return Sample(module, rows, tuple({0: batch} for _ in rows))


def _conv3d() -> nn.Module:
    return nn.Sequential(nn.Conv3d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 16, 3))


def _tokens() -> nets.Model:
    torch.manual_seed(0)
    return TiedHead().eval(), (torch.randint(0, 8000, (1, 1)),)


def _tabular() -> nets.Model:
    torch.manual_seed(0)
    return Tabular().eval(), (torch.randn(16, 16), torch.randint(0, 50, (16, 4)))


def _wide() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))


_NETS: Mapping[str, Callable[[], nets.Model]] = {
    "mlp": nets.mlp,
    "conv net": nets.conv_net,
    "attention": decoders.attention,
    "lstm": partial(plain, Recurrent, 1, 12, 32),
    "u-net": partial(plain, UNet, 1, 3, 64, 64),
    "detector": partial(plain, Detector, 1, 3, 64, 64),
    "tabular": _tabular,
    "sounds": partial(plain, Sounds, 1, 40, 100),
    "conv3d": partial(plain, _conv3d, 1, 3, 8, 24, 24),
    "tied head": _tokens,
    "branches": partial(plain, Branches, 8, 256),
    "found rows": partial(plain, Found, 64, 64),
    "transformer block": partial(plain, matrix.Block, 2, 6, 32),
    "cached decoder": decoders.cached_decoder,
    "while loop": decoders.while_loop,
    "bert-2": nets.bert,
    "llama-2": nets.llama,
    "cached llama-2": nets.cached_llama,
    "gemma3-4": gemma,
    "mobilenet": nets.mobilenet,
    "resnet18": nets.resnet18,
    "gru": nets.gru,
    "hybrid": nets.hybrid,
    "minilm": minilm.model,
    "int8 conv net": nets.quantised_conv_net,
    "int8 same padding": partial(quantised, partial(plain, SamePadded, 1, 3, 64, 64)),
    "int8 u-net": partial(quantised, partial(plain, UNet, 1, 3, 64, 64)),
    "int8 detector": partial(quantised, partial(plain, Detector, 1, 3, 64, 64)),
    "int8 resnet18": partial(quantised, nets.resnet18, is_per_channel=True),
    "int8 mlp, dynamic": partial(
        quantised, partial(plain, _wide, 8, 64), is_per_channel=True, is_dynamic=True
    ),
}
_DYNAMIC = {
    "mlp, dynamic batch": (nets.mlp, 16),
    "conv net, dynamic batch": (nets.conv_net, 4),
    "bert-2, dynamic batch": (nets.bert, 4),
    "transformer block, dynamic batch": (partial(plain, matrix.Block, 2, 6, 32), 8),
    "tabular, dynamic batch": (_tabular, 64),
}
_ARCHITECTURES = (
    *("roberta", "albert", "distilbert", "modernbert", "deberta", "electra", "mpnet"),
    *("mistral", "qwen3", "gemma2", "phi", "olmo2", "gpt2", "bloom", "opt", "gpt_neox"),
    *("mixtral", "mamba", "lfm2", "bart", "t5", "vit", "dinov2", "swin", "convnextv2"),
    *("pvt_v2", "regnet", "segformer", "mobilevit", "mobilevitv2", "levit", "poolformer"),
    *("focalnet", "hiera", "wav2vec2", "wavlm", "sew", "siglip_vision_model"),
)
_QUANTISED = ("two_dynamic_8_peraxis", "two_dynamic_4_pergroup")


def _samples() -> Iterator[tuple[str, Callable[[], Sample]]]:
    for name, make in _NETS.items():
        yield name, lambda make=make: Sample(*make())
    for name, (make, most) in _DYNAMIC.items():
        yield name, partial(dynamic, make, most)
    for place, names in {"architectures": _ARCHITECTURES, "quantised": _QUANTISED}.items():
        zoo = animals(place)
        for name in names:
            animal = zoo[f"{place}.{name}"]
            yield name, lambda one=animal: Sample(one.build(), one.calls[0], one.dynamic)


MODELS: Mapping[str, Callable[[], Sample]] = dict(_samples())
