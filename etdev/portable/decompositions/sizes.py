"""Sizes that may be dynamic or 0, and checks of indices that fail where eager PyTorch raises."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols


def fixed(size: Any) -> int:
    """Return a size that a formula unrolls by.

    Raises:
        NotImplementedError: It may change.
    """
    if isinstance(size, int):
        return size
    raise NotImplementedError("a dynamic size")


def least(size: Any) -> int:
    """Return a lower bound of a size, for dynamic sizes of inputs that may be 0.

    A program is traced as if they were two or more, whatever it is exported for.
    """
    if not isinstance(size, torch.SymInt):
        return int(size)
    known, depending = size.node.shape_env.var_to_range, free_unbacked_symbols(size)
    symbols = size.node.expr.free_symbols
    for smallest in (0, 1):
        # A size that something is divided by is not 0.
        with suppress(ZeroDivisionError):
            given = {s: known[s].lower if s in depending else smallest for s in symbols}
            value = size.node.expr.subs(given)
            return int(value) if value.is_Integer else 1
    return 0


def joined(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join tensors in the right shape, which the kernel forgets for empty results."""
    result = torch.cat(list(tensors), dim)
    like = [tensor for tensor in tensors if tensor.dim() == result.dim()]
    shape = list(like[0].shape)
    # Read from what is joined, since the result's own sizes are those that are wrong.
    shape[dim] = sum(tensor.shape[dim] for tensor in like)
    return result.view(shape)


def in_range(index: Tensor, size: Any) -> Tensor:
    """Return an index into `size` places; a negative one, or one out of range, fails."""
    places = torch.arange(size, device=index.device)
    return torch.gather(places, 0, index.reshape(-1)).reshape(index.shape).to(index.dtype)


def unless(wrong: Tensor, value: Tensor) -> Tensor:
    """Return a value; fail if `wrong` is True."""
    return value + in_range(wrong.to(torch.int64), 1).to(value.dtype)
