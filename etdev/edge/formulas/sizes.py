"""Sizes: what formulas do about those that are dynamic, and may be nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def fixed(size: Any) -> int:
    """A size that a formula unrolls by.

    Raises:
        NotImplementedError: It may change.
    """
    if isinstance(size, int):
        return size
    raise NotImplementedError("a dynamic size")


def joined(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """In the right shape, which a kernel forgets if nothing is joined."""
    result = torch.cat(list(tensors), dim)
    like = [tensor for tensor in tensors if tensor.dim() == result.dim()]
    shape = list(like[0].shape)
    # Read from what is joined, since the result's own sizes are those that are wrong.
    shape[dim] = sum(tensor.shape[dim] for tensor in like)
    return result.view(shape)
