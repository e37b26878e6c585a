"""The methods of an encoder-decoder: encode, prefill and decode, with a cache for each attention.

`prefill` keeps the keys and values of the source, which `decode` reads.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache

from etdev.errors import SourceError
from etdev_llm.caches import Buffers, differ, naming, plain_token

ENCODE = "encode"
_CURE = "lower its encoder and decoder as ordinary models"
_EXAMPLE = 5


class SourceLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of the source in one layer, with a row for each of its positions.

    Args:
        keys: A buffer, (1, heads, rows, size).
        values: As `keys`.
        filled: True if they are read, False if this call computes them.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, filled: bool) -> None:
        super().__init__()
        self.keys, self.values, self.filled = keys, values, filled
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the rows of a source, and return them."""
        rows = torch.arange(key_states.shape[2])
        self.keys.index_copy_(2, rows, key_states)
        self.values.index_copy_(2, rows, value_states)
        return key_states, value_states

    def get_seq_length(self) -> int:
        """Return 0 as long as the rows are not filled."""
        return int(self.keys.shape[2]) if self.filled else 0


class Encoder(nn.Module):
    """The encoder of a model: from features or tokens to states."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, source: torch.Tensor) -> torch.Tensor:
        """Return the states of a source, (1, positions, size)."""
        states: torch.Tensor = self.encoder(source).last_hidden_state
        return states


class Decoder(nn.Module):
    """The decoder of a model, whose source is in states or, once they were seen, in the cache.

    Args:
        model: An encoder-decoder of transformers with plain ops.
        length: Tokens of the longest text.
        states: Of an encoder, with as many positions as the longest source.
    """

    def __init__(self, model: Any, length: int, states: torch.Tensor) -> None:
        super().__init__()
        self.model, self.rows, self.size = model, states.shape[1], states.shape[2]
        tokens = torch.zeros(1, 2, dtype=torch.long)
        with torch.no_grad(), naming(type(model).__name__, "can't be called with a cache", _CURE):
            filled = model(
                encoder_outputs=(states,), decoder_input_ids=tokens, use_cache=True
            ).past_key_values
        if not isinstance(filled, EncoderDecoderCache):
            what = f"keeps its state in {type(filled).__name__}, not in two caches of transformers"
            raise SourceError(type(model).__name__, what, _CURE)
        self.cache = Buffers(filled.self_attention_cache.layers, length)
        self.source = Buffers(filled.cross_attention_cache.layers, self.rows)
        self.known: torch.Tensor
        self.register_buffer("known", torch.zeros(1, self.rows), persistent=False)
        self.takes_positions = "decoder_position_ids" in signature(model.forward).parameters
        # Sounds have one size, and their models no mask for a part of it.
        self.masks = model.main_input_name == "input_ids"

    def forward(
        self, tokens: torch.Tensor, start: torch.Tensor, states: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the logits behind the last token, (1, vocabulary)."""
        more: dict[str, Any] = {}
        if self.takes_positions:
            more["decoder_position_ids"] = (torch.arange(tokens.shape[1]) + start)[None]
        filled = states is None
        if states is None:
            # Only its shape counts.
            states = torch.zeros(1, self.rows, self.size)
            more |= {"attention_mask": self.known} if self.masks else {}
        elif self.masks:
            self.known.copy_(self._known(states))
        outputs = self.model(
            encoder_outputs=(states,),
            decoder_input_ids=tokens,
            past_key_values=EncoderDecoderCache(self.cache.at(start), self._source(filled)),
            use_cache=True,
            **more,
        )
        logits: torch.Tensor = outputs.logits[:, -1]
        return logits

    def _known(self, states: torch.Tensor) -> torch.Tensor:
        """Return the mask of a source: 1 for its positions, 0 for rows of an earlier one."""
        return (torch.arange(self.rows) < states.shape[1]).to(torch.float32)[None]

    def _source(self, filled: bool) -> Cache:
        pairs = zip(*[iter(self.source.buffers())] * 2, strict=True)
        return Cache(layers=[SourceLayer(keys, values, filled) for keys, values in pairs])


class Heard:
    """An encoder-decoder with one source, which is called as a decoder is, without a cache.

    Args:
        model: The encoder-decoder.
        source: Features or token ids of a source.
    """

    def __init__(self, model: Any, source: torch.Tensor) -> None:
        self.model, self.source = model, source
        self.config, self.dtype = model.config, model.dtype
        with torch.no_grad():
            self.states = Encoder(model)(source)

    def __call__(self, input_ids: torch.Tensor, use_cache: bool = False) -> Any:
        """Return the outputs of the model, with the cache of its self attention if asked for."""
        given = {self.model.main_input_name: self.source}
        outputs = self.model(**given, decoder_input_ids=input_ids, use_cache=use_cache)
        if use_cache:
            outputs.past_key_values = outputs.past_key_values.self_attention_cache
        return outputs


def sources_of(model: Any, most: int) -> list[torch.Tensor]:
    """Return sources for a model, the longest first; those of sounds have one length.

    Args:
        model: An encoder-decoder.
        most: Tokens of the longest source.
    """
    config, random = model.config, torch.Generator().manual_seed(2)
    if model.main_input_name == "input_ids":
        sizes = (most, max(1, most // 3))
        return [torch.randint(config.vocab_size, (1, n), generator=random) for n in sizes]
    with naming(type(model).__name__, "has a source that is neither tokens nor features", _CURE):
        encoder = model.get_encoder()
        frames = config.max_source_positions * encoder.conv1.stride[0] * encoder.conv2.stride[0]
        shape = (1, config.num_mel_bins, frames)
    return [torch.randn(shape, generator=random).to(model.dtype) for _ in range(2)]


def methods_of(model: Any, length: int, source: torch.Tensor) -> dict[str, Any]:
    """Return the methods `encode`, `prefill` and `decode` of an encoder-decoder.

    Args:
        model: With plain ops.
        length: Tokens of the longest text.
        source: The longest source.

    Raises:
        SourceError: The model takes fewer tokens, or can't be called with a cache of fixed length.
    """
    encoder = Encoder(model).eval()
    with torch.no_grad():
        states = encoder(source)
    decoder = Decoder(model, length, states).eval()
    start = torch.zeros(1, dtype=torch.long)
    tokens = torch.full((1, min(_EXAMPLE, length)), plain_token(model))
    who = type(model).__name__
    with torch.no_grad(), naming(who, "can't be called with a cache of fixed length", _CURE):
        found = decoder(tokens[:, :2], start, states)
        wanted = model(
            encoder_outputs=(states,), decoder_input_ids=tokens[:, :2], use_cache=False
        ).logits[:, -1]
    if differ(found, wanted):
        raise SourceError(who, "has other logits with a cache of fixed length", _CURE)
    with torch.no_grad(), naming(who, f"can't have {length} tokens", "give less"):
        decoder(tokens[:, :1], start + length - 1, states)
    text: Any = {1: Dim("length", min=1, max=length)}
    if not decoder.masks:
        heard: Any = ((source,),)
        sizes: Any = (text, None, None)
    else:
        part = {1: Dim("source", min=1, max=source.shape[1])}
        heard, sizes = ((source[:, :-1],), (part,)), (text, None, part)
        states = states[:, :-1]
    return {
        ENCODE: (encoder, *heard),
        "prefill": (decoder, (tokens, start, states), sizes),
        "decode": (decoder, (tokens[:, :1], start + 1)),
    }
