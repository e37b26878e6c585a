"""The methods of a decoder: prefill and decode, and ExecuTorch's metadata."""

from __future__ import annotations

import copy
from inspect import signature
from typing import Any

import torch
from attrs import frozen
from torch import nn
from torch.export import Dim
from torch.overrides import TorchFunctionMode

from etdev import Settings
from etdev.errors import SourceError
from etdev_llm import attention, encoder_decoder
from etdev_llm.caches import Buffers, differ, filled, naming, plain_token
from etdev_llm.positions import fix_frequencies
from etdev_llm.rotary import RealRotary
from etdev_llm.sources import RECIPE, Recipe

PREFILL, DECODE, SINGLE, CACHE = "prefill", "decode", "forward", "get_cache"
_EXAMPLE = 5
# Writes experts with ordinary matrix products. ExecuTorch fixes a dynamic number of tokens to the
# example's in the grouped one.
_EXPERTS = "batched_mm"
LESS = "lower it without a cache, as an ordinary model"


class Step(nn.Module):
    """A decoder that takes tokens and their first position, and returns the last one's logits.

    Args:
        model: A decoder of transformers, which is not changed.
        length: Tokens of the longest sequence.
        int8: Keep keys and values in 8 bits.
        batch: Sequences of one length that are generated together.
    """

    def __init__(self, model: Any, length: int, int8: bool = False, batch: int = 1) -> None:
        super().__init__()
        self.length, self.batch = length, batch
        self.model = _with_plain_ops(model)
        fix_frequencies(self.model, length)
        self.cache = Buffers(filled(self.model), length, int8, batch)
        # Some models can't tell the positions from a cache whose length is a tensor. Others begin
        # with another one than 0, as RoBERTa does.
        self.takes_positions = (
            "position_ids" in signature(model.forward).parameters and self._begins_with_0()
        )

    def forward(self, tokens: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the logits behind the last token, (batch, vocabulary)."""
        more = {}
        if self.takes_positions:
            more["position_ids"] = (torch.arange(tokens.shape[1]) + start)[None]
        with RealRotary():
            outputs = self.model(
                input_ids=tokens,
                past_key_values=self.cache.at(start),
                # Some models make a mask of a length that depends on the position otherwise. Of
                # one that is in memory as a whole, torch.export asks whether a part of it is all.
                attention_mask=torch.ones(1, 1).expand(self.batch, self.length),
                use_cache=True,
                logits_to_keep=1,
                **more,
            )
        logits: torch.Tensor = outputs.logits[:, -1]
        return logits

    @torch.no_grad()
    def _begins_with_0(self) -> bool:
        one = torch.ones(1, 1, dtype=torch.long)
        own, given = (
            self.model(input_ids=one, **more).logits for more in ({}, {"position_ids": one - 1})
        )
        return not differ(given, own)

    @torch.no_grad()
    def check(self) -> None:
        """Refuse a model that can't be called so, or that reads rows which hold no token yet.

        Raises:
            SourceError: The logits depend on such rows, as no mask of the model covers them, its
                table of positions is shorter than the cache, or it computes what no .pte can.
        """
        who, one = type(self.model).__name__, torch.full((self.batch, 1), plain_token(self.model))
        first = torch.zeros(1, dtype=torch.long)
        with Unlowerable(who):
            self(one, first)
        with naming(who, f"can't take a token at position {self.length - 1}", "give less"):
            self(one, first + self.length - 1)
        found = []
        for value in (100, 0):
            for rows in self.cache.buffers():
                rows.fill_(value)
            found.append(self(one, first))
        for rows in self.cache.buffers():
            rows.zero_()
        if differ(*found):
            what = "reads rows of a cache of fixed length that hold no token yet"
            raise SourceError(who, what, LESS)


class Unlowerable(TorchFunctionMode):
    """A mode that refuses results which no .pte can have: complex, or of sizes by values."""

    def __init__(self, who: str) -> None:
        super().__init__()
        self._who = who

    def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch, and look at its result."""
        result, name = func(*args, **(kwargs or {})), getattr(func, "__name__", str(func))
        if isinstance(result, torch.Tensor) and result.is_complex():
            what = f"computes with complex numbers ({name}), for which ExecuTorch has no kernels"
            raise SourceError(self._who, what, "give it rotary embeddings of sines and cosines")
        if name == "nonzero" or (name == "where" and len(args) == 1):
            what = f"has tensors whose sizes depend on values ({name}), such as the rows of experts"
            raise SourceError(self._who, what, "write it with tensors of known sizes")
        return result


class Rows(nn.Module):
    """The keys and values of each layer's cache, for the comparison with PyTorch's."""

    def __init__(self, cache: Buffers) -> None:
        super().__init__()
        self.cache = cache

    def forward(self) -> tuple[torch.Tensor, ...]:
        """Return them, layer by layer."""
        return self.cache.rows()


@frozen(eq=False)
class Generation:
    """A decoder as methods that share weights and cache, for any Lowerer.

    Args:
        methods: What `Lowerer.lower` takes.
        settings: Its settings, which add ExecuTorch's metadata methods.

    Example:
        made = generation(model, 128)
        etdev.Lowerer(["cpu"]).lower(made.methods, settings=made.settings).save("net.pte")
    """

    methods: dict[str, Any]
    settings: Settings


def generation(  # noqa: PLR0913 - all but the first two have defaults
    model: Any,
    length: int,
    single_method: bool = False,
    recipe: Recipe | None = None,
    source_length: int | None = None,
    batch: int = 1,
) -> Generation:
    """Return the methods `prefill` and `decode` of a decoder, or `forward` alone, and `get_cache`.

    Both take token ids (batch, n) and the position of the first one (1), int64, and return the
    logits behind the last token, (batch, vocabulary). `prefill` and `forward` take 1 to `length`
    tokens, `decode` takes one. `get_cache` returns the keys and values of each layer, for
    comparisons.

    Args:
        model: A decoder of transformers, such as AutoModelForCausalLM gives.
        length: Tokens of the longest sequence, prompt and answer.
        single_method: Write `forward` alone, which ExecuTorch's TextLLMRunner calls.
        recipe: The way in which the model was made, which the file keeps for `etdev generate`.
        source_length: For an encoder-decoder of texts, tokens of the longest source; `length` if
            None. Its methods are `encode`, from a source to states, `prefill`, which takes those,
            too, `decode` and `get_cache`.
        batch: Sequences that are generated together; all have as many tokens.

    Raises:
        SourceError: The model takes fewer tokens, or has a cache that can't be lowered, or an
            encoder-decoder a batch.
    """
    text = model.config.get_text_config()
    most = getattr(text, "max_position_embeddings", None)
    if length < 2 or (most and length > most):
        name = type(model).__name__
        raise SourceError(name, f"can't have {length} tokens", f"give 2 to {most or 'any number'}")
    constants = {**_metadata(model, length), "enable_dynamic_shape": True}
    if recipe:
        constants[RECIPE] = recipe.to_json()
    int8 = recipe is not None and recipe.quantize_cache == "int8"
    if model.config.is_encoder_decoder:
        if int8:
            what = "has two caches, which are kept in float"
            raise SourceError(type(model).__name__, what, "leave out --quantize-cache")
        if batch > 1:
            what = "has sources of several lengths, which make no batch"
            raise SourceError(type(model).__name__, what, "leave out --batch")
        source, *_ = encoder_decoder.sources_of(model, source_length or length)
        methods = encoder_decoder.methods_of(_with_plain_ops(model), length, source)
        methods[CACHE] = (Rows(methods[PREFILL][0].cache), ())
        return Generation(methods, Settings(constant_methods=constants))
    with naming(type(model).__name__, "can't be called with a cache of fixed length", LESS):
        step = Step(model, length, int8, batch).eval()
        step.check()
    start = torch.zeros(1, dtype=torch.long)
    several = (torch.arange(min(_EXAMPLE, length)) + torch.arange(batch)[:, None]) % text.vocab_size
    sizes = ({1: Dim("length", min=1, max=length)}, None)
    long = (step, (several, start), sizes)
    methods = {PREFILL: long, DECODE: (step, (several[:, :1], start + 1))}
    methods = {SINGLE: long} if single_method else methods
    methods[CACHE] = (Rows(step.cache), ())
    return Generation(methods, Settings(constant_methods=constants))


def _metadata(model: Any, length: int) -> dict[str, Any]:
    """Return the values that ExecuTorch's runners ask a program for."""
    text = model.config.get_text_config()
    first = "decoder_start_token_id" if model.config.is_encoder_decoder else "bos_token_id"
    known = {"get_bos_id": getattr(model.config, first, getattr(text, "bos_token_id", None))}
    ends = getattr(text, "eos_token_id", None)
    ends = ends if isinstance(ends, (list, tuple)) else [ends]
    known["get_eos_ids"] = [end for end in ends if end is not None] or None
    return {
        "get_vocab_size": text.vocab_size,
        "get_max_seq_len": length,
        "get_max_context_len": length,
        "get_n_layers": text.num_hidden_layers,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        **{name: value for name, value in known.items() if value is not None},
    }


def _with_plain_ops(model: Any) -> Any:
    """Return a copy with the same weights, whose attention and experts are ordinary products."""
    weights = [*model.parameters(), *model.buffers()]
    same = copy.deepcopy(model, {id(weight): weight for weight in weights})
    config = same.config.get_text_config()
    if getattr(config, "_attn_implementation", None) == "sdpa":
        same.set_attn_implementation(attention.NAME)
    if getattr(config, "_experts_implementation", None) is not None:
        same.set_experts_implementation(_EXPERTS)
    return same
