"""Checks that fail at run time where eager PyTorch raises, in a kernel that checks indices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def in_range(index: Tensor, size: Any) -> Tensor:
    """Return an index into `size` places; a negative one, or one out of range, fails."""
    places = torch.arange(size, device=index.device)
    return torch.gather(places, 0, index.reshape(-1)).reshape(index.shape).to(index.dtype)


def unless(wrong: Tensor, value: Tensor) -> Tensor:
    """Return a value; fail if `wrong` is True."""
    return value + in_range(wrong.to(torch.int64), 1).to(value.dtype)
