"""Attention without a mask, written with XNNPACK's own softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from etdev.graph import op_name, pieces_of
from etdev_cpu.layers import dtypes, short

ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
_MASKED = ("attn_mask", "dropout_p", "is_causal", "enable_gqa")
_NAME = str(ATTENTION)


def is_unmasked(node: Node) -> bool:
    """Return True for float32 attention whose scores are -inf only for infinite or huge inputs.

    torch decomposes it with a softmax that is 0 for rows of nothing but -inf, which takes longer.
    """
    plain = not any(node.args[3:]) and not any(map(node.kwargs.get, _MASKED))
    return op_name(node) == _NAME and plain and dtypes([node]) == {torch.float32}


def attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **options: Any) -> Tensor:
    """Compute attention without a mask, as `scaled_dot_product_attention` does."""
    scale = options.get("scale")
    scaled = query * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    return torch.softmax(scaled @ key.transpose(-2, -1), -1) @ value


def is_of_attention(node: Node) -> bool:
    """Return True for the softmax of attention that was written so."""
    return short(node) == "_softmax" and _NAME in pieces_of(node)
