"""Decoders that a SOURCE names: a folder or hub id, a config, or a Python function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from etdev.cli import sources
from etdev.errors import SourceError, first_line

_CURE = "give a folder or hub id of transformers, a config.json, or file.py:function"


def load(text: str, seed: int = 0, dtype: str | None = None) -> Any:
    """Return the decoder of a SOURCE, in evaluation mode.

    Raises:
        SourceError: It can't be loaded, or is not a decoder of transformers.
    """
    torch.manual_seed(seed)
    kind = getattr(torch, dtype) if dtype else None
    try:
        if text.endswith(".json"):
            fields = json.loads(Path(text).read_text(encoding="utf-8"))
            config = AutoConfig.for_model(fields.pop("model_type"), **fields)
            model = AutoModelForCausalLM.from_config(config, dtype=kind or torch.float32)
        elif ":" in text and not Path(text).exists():
            model = sources.returned(text)
            model = model.to(kind) if kind else model
        else:
            model = AutoModelForCausalLM.from_pretrained(text, dtype=kind or torch.float32)
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(text, f"can't be loaded: {first_line(error)}", _CURE) from error
    if not hasattr(getattr(model, "config", None), "get_text_config"):
        what = f"returned {type(model).__name__}, not a model of transformers"
        raise SourceError(text, what, _CURE)
    return model.eval()
