"""Decoders that a SOURCE names: a folder or hub id, a config, or a Python function."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, frozen
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES

from etdev.app import sources
from etdev.errors import EtdevWarning, SourceError
from etdev_llm.caches import naming

# The method of a .pte that returns a recipe as JSON.
RECIPE = "get_etdev_recipe"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
_CURE = "give a folder or hub id of transformers, a config.json, or file.py:function"


@frozen
class Recipe:
    """The way in which a decoder is made of a SOURCE.

    Args:
        seed: Of the random weights of a config.
        dtype: Of the weights, such as `float16`; None for float32, or for what a function returns.
        quantize: Of the linear layers, as `quantise` takes it.
        quantize_embedding: Of the table of tokens.
        scales: The dtype of the scales of 4-bit weights.
        quantize_cache: Of keys and values: `int8` or `none`.
        tokenizer: The folder or hub id that has the tokenizer, if the SOURCE is one.
    """

    seed: int = 0
    dtype: str | None = None
    quantize: str = "none"
    quantize_embedding: str = "none"
    scales: str = "bfloat16"
    quantize_cache: str = "none"
    tokenizer: str = ""

    def to_json(self) -> str:
        """Return it as text, which a .pte keeps."""
        return json.dumps(asdict(self))

    def load(self, text: str) -> Any:
        """Return the decoder of a SOURCE, in evaluation mode.

        Raises:
            SourceError: It can't be loaded or quantised, or is not a decoder of transformers.
        """
        torch.manual_seed(self.seed)
        kind = getattr(torch, self.dtype) if self.dtype else None
        with naming(text, "can't be loaded", _CURE):
            model = _model(text, kind)
        if not hasattr(getattr(model, "config", None), "get_text_config"):
            what = f"returned {type(model).__name__}, not a model of transformers"
            raise SourceError(text, what, _CURE)
        if (self.quantize, self.quantize_embedding) != ("none", "none"):
            from etdev_llm.quantisation import quantise

            quantise(model, self.quantize, self.quantize_embedding, self.scales)
        return model.eval()


def _model(text: str, dtype: torch.dtype | None) -> Any:
    folder = Path(text)
    if folder.is_dir() and not any(map(list, map(folder.glob, _WEIGHTS))):
        warnings.warn(f"{text}: has no weights, so they are random", EtdevWarning, stacklevel=3)
        text = str(folder / "config.json")
    if ":" in text and not Path(text).exists():
        model = sources.returned(text)
        return model.to(dtype) if dtype else model
    config = AutoConfig.from_pretrained(text)
    kind, dtype = _class_of(config), dtype or torch.float32
    if text.endswith(".json"):
        return kind.from_config(config, dtype=dtype)
    if getattr(config, "quantization_config", None):
        from etdev_llm import checkpoints

        return checkpoints.loaded(text, config, kind, dtype)
    return kind.from_pretrained(text, dtype=dtype)


def _class_of(config: Any) -> Any:
    """Return transformers' class for the models of a configuration."""
    if not config.is_encoder_decoder:
        return AutoModelForCausalLM
    sounds = config.model_type in MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES
    return AutoModelForSpeechSeq2Seq if sounds else AutoModelForSeq2SeqLM
