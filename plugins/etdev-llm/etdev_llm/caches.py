"""Caches whose layers write rows of buffers at a position that is an input of the method."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    LinearAttentionLayer,
    StaticLayer,
)

from etdev.errors import EtdevError, SourceError, first_line

# The layers of a DynamicCache that Layer can stand for. A sliding window is all in the mask.
KNOWN = (DynamicLayer, DynamicSlidingWindowLayer)
_PARTS, _INPUTS = ("keys", "values"), "inputs"
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


class Inputs(LinearAttentionLayer):  # type: ignore[misc]
    """The last inputs of one layer's convolution; a call at position 0 knows none of them.

    Args:
        values: A buffer, (batch, channels, size of the kernel).
        start: The position of the first token of this call, (1,).
    """

    def __init__(self, values: torch.Tensor, start: torch.Tensor) -> None:
        super().__init__()
        values.copy_(torch.where(start > 0, values, torch.zeros_like(values)))
        self.conv_states[0], self.conv_kernel_size[0] = values, values.shape[-1]
        self.is_conv_states_initialized[0] = self.has_previous_state[0] = True


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
        self.int8, self.length, self.batch = int8, length, batch
        self.windows: list[bool | None] = []
        for index, layer in enumerate(layers):
            self.windows.append(getattr(layer, "is_sliding", None))
            if type(layer) in KNOWN:
                for name, value in zip(_PARTS, (layer.keys, layer.values), strict=True):
                    self._make_rows(f"{name}_{index}", value)
            elif (inputs := convolved(layer)) is not None:
                zeros = inputs.new_zeros(batch, *inputs.shape[1:])
                self.register_buffer(f"{_INPUTS}_{index}", zeros, persistent=False)
            elif not isinstance(layer, DummyLayer):
                what = f"is a {type(layer).__name__}, whose state has no rows by position"
                raise SourceError(f"cache of layer {index}", what, _CURE)

    def _make_rows(self, name: str, value: torch.Tensor) -> None:
        """Make a buffer with a row for each position, and one of their scales."""
        zeros = value.new_zeros(self.batch, value.shape[1], self.length, value.shape[3])
        if self.int8:
            self.register_buffer(f"{name}_scale", zeros[..., :1].clone(), persistent=False)
            zeros = zeros.to(torch.int8)
        self.register_buffer(name, zeros, persistent=False)

    def at(self, start: torch.Tensor) -> Cache:
        """Return the cache for a call that begins at a position."""
        known = dict(self.named_buffers())
        numbers = range(len(self.windows))
        return Cache(layers=[self._layer(known, index, start) for index in numbers])

    def _layer(self, known: Mapping[str, torch.Tensor], index: int, start: torch.Tensor) -> Any:
        if (inputs := known.get(f"{_INPUTS}_{index}")) is not None:
            return Inputs(inputs, start)
        if f"{_PARTS[0]}_{index}" not in known:
            return DummyLayer()
        keys, values = (known[f"{name}_{index}"] for name in _PARTS)
        window = bool(self.windows[index])
        if not self.int8:
            return Layer(keys, values, start, window)
        scales = [known[f"{name}_{index}_scale"] for name in _PARTS]
        return Int8Layer(keys, values, start, window, scales)

    def rows(self) -> tuple[torch.Tensor, ...]:
        """Return copies of the state of each layer in turn, in float."""
        known = dict(self.named_buffers())
        pairs = [(n, known.get(f"{n}_scale")) for n in known if not n.endswith("_scale")]
        return tuple(
            known[name].clone() if scale is None else known[name].to(scale.dtype) * scale
            for name, scale in pairs
        )

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


def convolved(layer: Any) -> torch.Tensor | None:
    """Return the last inputs of a convolution if they are all that a filled layer keeps."""
    if type(layer) is not LinearAttentionLayer or layer.number_of_states > 1:
        return None
    return layer.conv_states[0] if layer.recurrent_states[0] is None else None


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
