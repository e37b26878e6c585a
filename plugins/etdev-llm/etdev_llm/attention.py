"""Attention in fewer ops than PyTorch's `scaled_dot_product_attention` is decomposed to.

The heads that share keys become rows of one product, so that the cache is not copied for each head.
Rows whose keys are all masked are not searched for, since the masks of decoders have none.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask

NAME = "etdev_llm"


def attend(  # noqa: PLR0913 - as transformers' interface has it
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    position_bias: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Return the output of attention, (1, tokens, heads, size), and None for its weights."""
    if attention_mask is None or position_bias is not None:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, key, value, attention_mask,
            scaling=scaling, position_bias=position_bias, **others,
        )  # fmt: skip
    groups, heads = key.shape[1], query.shape[1] // key.shape[1]
    rows = _together(query * (scaling or query.shape[3] ** -0.5), groups)
    scores = _apart(rows @ key.transpose(2, 3), heads, query.shape[2]) + attention_mask
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    output = _apart(_together(weights, groups) @ value, heads, query.shape[2])
    return output.transpose(1, 2).contiguous(), None


def _together(value: torch.Tensor, groups: int) -> torch.Tensor:
    """Make the tokens of all heads that share keys rows of one matrix."""
    return torch.unflatten(value, 1, (groups, -1)).flatten(2, 3)


def _apart(value: torch.Tensor, heads: int, tokens: int) -> torch.Tensor:
    """Undo `_together`; torch.export can't find the sizes of a reshape here."""
    return torch.unflatten(value, 2, (heads, tokens)).flatten(1, 2)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, eager_mask)
