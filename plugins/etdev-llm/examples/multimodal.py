"""Speech and images: models of several methods that share a cache, small and with random weights.

etdev lower examples/multimodal.py:whisper -o whisper.pte
etdev lower examples/multimodal.py:llava -o llava.pte
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from etdev_llm.caches import Buffers
from torch import nn
from torch.export import Dim
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

# Tokens of the longest text.
LENGTH = 16


class Calls(nn.Module):
    """A method that calls a function with a model, and with a cache if it has one."""

    def __init__(
        self, model: Any, function: Callable[..., torch.Tensor], cache: Buffers | None = None
    ) -> None:
        super().__init__()
        self.model, self.function, self.cache = model, function, cache

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Call the function."""
        held = (self.model,) if self.cache is None else (self.model, self.cache)
        return self.function(*held, *inputs)


def encode(model: Any, features: torch.Tensor) -> torch.Tensor:
    """Return the states of a sound."""
    states: torch.Tensor = model.model.encoder(features).last_hidden_state
    return states


def transcribe(
    model: Any, cache: Buffers, tokens: torch.Tensor, start: torch.Tensor, states: torch.Tensor
) -> torch.Tensor:
    """Return the logits behind the last token of a text about a sound."""
    outputs = model(
        encoder_outputs=(states,),
        decoder_input_ids=tokens,
        decoder_position_ids=(torch.arange(tokens.shape[1]) + start)[None],
        # Keys and values of the sound are computed anew from its states.
        past_key_values=EncoderDecoderCache(cache.at(start), DynamicCache()),
        use_cache=True,
    )
    logits: torch.Tensor = outputs.logits[:, -1]
    return logits


def whisper_model() -> Any:
    """Return a small Whisper."""
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8,
        max_source_positions=20, max_target_positions=LENGTH, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    return WhisperForConditionalGeneration(config).eval()


def whisper() -> dict[str, Any]:
    """Return the methods `encode`, `prefill` and `decode` of a small Whisper."""
    model = whisper_model()
    features, tokens = torch.randn(1, 8, 40), torch.tensor([[1, 7, 3]])
    with torch.no_grad():
        states = encode(model, features)
        filled = model(encoder_outputs=(states,), decoder_input_ids=tokens, use_cache=True)
    cache = Buffers(filled.past_key_values.self_attention_cache.layers, LENGTH)
    step = Calls(model, transcribe, cache)
    start = torch.zeros(1, dtype=torch.long)
    sizes = (({1: Dim("length", min=1, max=LENGTH)}, None, None),)
    return {
        "encode": (Calls(model, encode), (features,)),
        "prefill": (step, (tokens, start, states), sizes),
        "decode": (step, (tokens[:, :1], start + 3, states)),
    }


def see(model: Any, pixels: torch.Tensor) -> torch.Tensor:
    """Return an image as embeddings, which stand in the text as those of tokens do."""
    seen: torch.Tensor = model.get_image_features(pixel_values=pixels).pooler_output[0][None]
    return seen


def answer(
    model: Any, cache: Buffers, embeddings: torch.Tensor, start: torch.Tensor
) -> torch.Tensor:
    """Return the logits behind the last embedding of a text with images."""
    outputs = model.model.language_model(
        inputs_embeds=embeddings,
        position_ids=(torch.arange(embeddings.shape[1]) + start)[None],
        past_key_values=cache.at(start),
        use_cache=True,
    )
    logits: torch.Tensor = model.lm_head(outputs.last_hidden_state[:, -1])
    return logits


def llava_model() -> Any:
    """Return a small Llava."""
    torch.manual_seed(0)
    sizes = {"intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    vision = CLIPVisionConfig(hidden_size=32, image_size=16, patch_size=8, **sizes)
    text = LlamaConfig(vocab_size=64, hidden_size=32, max_position_embeddings=LENGTH, **sizes)
    return LlavaForConditionalGeneration(
        LlavaConfig(vision_config=vision, text_config=text, image_token_index=63)
    ).eval()


def llava() -> dict[str, Any]:
    """Return the methods `see`, `embed`, `prefill` and `decode` of a small Llava."""
    model = llava_model()
    pixels, tokens = torch.randn(1, 3, 16, 16), torch.tensor([[1, 7, 3]])
    embed = model.get_input_embeddings()
    with torch.no_grad():
        embeddings = embed(tokens)
        filled = model.model.language_model(inputs_embeds=embeddings, use_cache=True)
    step = Calls(model, answer, Buffers(filled.past_key_values.layers, LENGTH))
    start = torch.zeros(1, dtype=torch.long)
    length = Dim("length", min=1, max=LENGTH)
    return {
        "see": (Calls(model, see), (pixels,)),
        "embed": (embed, (tokens,), ({1: length},)),
        "prefill": (step, (embeddings, start), (({1: length}, None),)),
        "decode": (step, (embeddings[:, :1], start + 3)),
    }
