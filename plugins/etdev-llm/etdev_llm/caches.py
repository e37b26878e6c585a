"""Caches whose layers write rows of buffers at a position that is an input of the method."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    StaticLayer,
)

from etdev.errors import EtdevError, SourceError, first_line

# The layers of a DynamicCache that Layer can stand for. A sliding window is all in the mask.
KNOWN = (DynamicLayer, DynamicSlidingWindowLayer)
_PARTS = ("keys", "values")
_CURE = "take a model with full or sliding attention only"


class Layer(StaticLayer):  # type: ignore[misc]
    """Keys and values of one layer, with a row for each position of the longest sequence.

    Args:
        keys: A buffer, (batch, heads, rows, size).
        values: As `keys`.
        start: The position of the first token of this call, (1,).
        is_sliding: True if the layer's mask is a sliding window.
    """

    def __init__(
        self, keys: torch.Tensor, values: torch.Tensor, start: torch.Tensor, is_sliding: bool
    ) -> None:
        # StaticLayer's own __init__ makes a tensor, which torch.export would keep as a constant.
        CacheLayerMixin.__init__(self)
        self.keys, self.values, self.cumulative_length = keys, values, start
        self.max_cache_len, self.device = keys.shape[2], keys.device
        self.is_sliding, self.is_initialized = is_sliding, True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the rows of new tokens, and return all rows; the start is not advanced."""
        positions = torch.arange(key_states.shape[-2], device=self.device) + self.cumulative_length
        self.keys.index_copy_(2, positions, key_states)
        self.values.index_copy_(2, positions, value_states)
        return self.keys, self.values


class Int8Layer(Layer):
    """A layer that keeps int8 values, and a scale for each token and head.

    Args:
        keys: A buffer, int8, (batch, heads, rows, size).
        values: As `keys`.
        start: The position of the first token of this call, (1,).
        is_sliding: True if the layer's mask is a sliding window.
        scales: Of the keys and of the values, (batch, heads, rows, 1).
    """

    def __init__(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        start: torch.Tensor,
        is_sliding: bool,
        scales: Sequence[torch.Tensor],
    ) -> None:
        super().__init__(keys, values, start, is_sliding)
        self.scales = scales

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the rows of new tokens, and return all rows in float."""
        pairs = zip((key_states, value_states), self.scales, strict=True)
        known = [(*quantised(states), scales) for states, scales in pairs]
        super().update(*(rows for rows, *_ in known))
        positions = torch.arange(key_states.shape[-2], device=self.device) + self.cumulative_length
        for _rows, new, scales in known:
            scales.index_copy_(2, positions, new)
        keys, values = self.scales
        return self.keys.to(keys.dtype) * keys, self.values.to(values.dtype) * values


def quantised(states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int8 values of keys or values, and the scale of each row."""
    largest = torch.finfo(states.dtype).tiny * 127
    scale = states.abs().amax(-1, keepdim=True).clamp_min(largest) / 127
    return (states / scale).round().clamp(-127, 127).to(torch.int8), scale


class Buffers(nn.Module):
    """The buffers of a cache.

    Args:
        layers: Those of a DynamicCache that the model filled, for their sizes.
        length: Tokens of the longest sequence.
        int8: Keep keys and values in 8 bits, with a scale for each token and head.
        batch: Sequences that are generated together.

    Raises:
        SourceError: A layer keeps its state in a form that has no rows by position.
    """

    def __init__(
        self, layers: Iterable[Any], length: int, int8: bool = False, batch: int = 1
    ) -> None:
        super().__init__()
        self.int8 = int8
        self.windows: list[bool | None] = []
        for index, layer in enumerate(layers):
            if isinstance(layer, DummyLayer):
                self.windows.append(None)
                continue
            if type(layer) not in KNOWN:
                what = f"is a {type(layer).__name__}, whose state has no rows by position"
                raise SourceError(f"cache of layer {index}", what, _CURE)
            for name, value in zip(_PARTS, (layer.keys, layer.values), strict=True):
                _, heads, _, size = value.shape
                zeros = value.new_zeros(batch, heads, length, size)
                if int8:
                    scales = zeros[..., :1].clone()
                    self.register_buffer(f"{name}_scale_{index}", scales, persistent=False)
                    zeros = zeros.to(torch.int8)
                self.register_buffer(f"{name}_{index}", zeros, persistent=False)
            self.windows.append(bool(layer.is_sliding))

    def at(self, start: torch.Tensor) -> Cache:
        """Return the cache for a call that begins at a position."""
        return Cache(layers=[self._layer(index, start) for index in range(len(self.windows))])

    def _layer(self, index: int, start: torch.Tensor) -> Any:
        window = self.windows[index]
        if window is None:
            return DummyLayer()
        keys, values = (getattr(self, f"{name}_{index}") for name in _PARTS)
        if not self.int8:
            return Layer(keys, values, start, window)
        scales = [getattr(self, f"{name}_scale_{index}") for name in _PARTS]
        return Int8Layer(keys, values, start, window, scales)

    def rows(self) -> tuple[torch.Tensor, ...]:
        """Return copies of keys and values of each layer, in float."""
        found = []
        for index in (n for n, window in enumerate(self.windows) if window is not None):
            for name in _PARTS:
                value = getattr(self, f"{name}_{index}")
                scale = getattr(self, f"{name}_scale_{index}") if self.int8 else None
                found.append(value.clone() if scale is None else value.to(scale.dtype) * scale)
        return tuple(found)

    @property
    def size_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(value.nbytes for value in self.buffers())


def filled(model: Any) -> list[Any]:
    """Return the layers of the cache that a decoder fills.

    Raises:
        SourceError: It keeps its state elsewhere.
    """
    who = type(model).__name__
    with torch.no_grad(), naming(who, "can't be called with tokens and a cache", _CURE):
        device = next(model.parameters()).device
        tokens = torch.zeros(1, 2, dtype=torch.long, device=device)
        outputs = model(input_ids=tokens, use_cache=True)
    cache = getattr(outputs, "past_key_values", None)
    if not isinstance(cache, DynamicCache):
        what = f"keeps its state in {type(cache).__name__}, not in a DynamicCache of transformers"
        raise SourceError(who, what, _CURE)
    return list(cache.layers)


@contextmanager
def naming(who: str, what: str, cure: str) -> Iterator[None]:
    """Raise a SourceError in place of any exception of a model's own code."""
    try:
        yield
    except EtdevError:
        raise
    except Exception as error:
        raise SourceError(who, f"{what}: {first_line(error)}", cure) from error


def plain_token(model: Any) -> int:
    """Return a token that doesn't pad; some models don't count the position of one that does."""
    return int(getattr(model.config.get_text_config(), "pad_token_id", None) == 0)


def differ(logits: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Return True if logits differ by more than rounding."""
    return float((logits - wanted).abs().max()) > 1e-3 * float(wanted.abs().max())
