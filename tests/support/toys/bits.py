"""Comparison of values bit by bit, for two runtimes that have to agree."""

from __future__ import annotations

from typing import Any

import torch


def same(a: Any, b: Any) -> bool:
    """Return True if two values have the same type, dtype, shape and bits."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and repr(a) == repr(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    first, second = (value.contiguous().reshape(-1) for value in (a, b))
    return not a.numel() or torch.equal(first.view(torch.uint8), second.view(torch.uint8))
