"""Formulas of ops on float16 and bfloat16 whose kernels add in those types; PyTorch's use float32.

A sum of a few hundred numbers is off by percents otherwise, and one of large ones overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from etdev.portable.decompositions import kernels
from etdev.upstream.trees import pytree

DTYPES = (torch.float16, torch.bfloat16)
_Formula = Callable[..., Any]


def widened(op: _Formula) -> _Formula:
    """Return an op computed in float32, and rounded once."""

    def formula(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        wide = pytree.tree_map(_wide, (x, args, kwargs))
        result = op(wide[0], *wide[1], **wide[2])
        return pytree.tree_map(lambda value: value.to(x.dtype), result)

    return formula


def _wide(value: Any) -> Any:
    return value.to(torch.float32) if isinstance(value, Tensor) and value.dtype in DTYPES else value


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *args: Any) -> Tensor:
    volume = x.dim() == 5 or len(args[0]) == 3
    op: _Formula = kernels.convolution if volume else torch.ops.aten.convolution.default
    return op(x, weight, bias, *args)


convolution = widened(_convolution)
