"""Decompositions that ExecuTorch and torch have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from executorch.exir.tracer import _default_decomposition_table

from etdev.upstream.operators import OpOverload, base_name
from etdev.upstream.shortcuts.decompositions import quick_decompositions

Table = Mapping[Any, Callable[..., Any]]


def executorch_table() -> Table:
    """Return the decompositions that ExecuTorch applies."""
    with quick_decompositions() as kept:
        return dict(kept(_default_decomposition_table).items())


def further_pieces(op: OpOverload) -> Callable[..., Any] | None:
    """Return how torch itself decomposes an op; for a primitive, the ATen op that it stands for."""
    if op.namespace == "prims":
        own = getattr(torch._prims, base_name(op), None)
        # torch's own conversion writes to a new tensor, as no functional program may.
        converts = own is torch._prims.convert_element_type
        return torch.Tensor.to if converts else getattr(own, "impl_aten", None)
    # Importing the first registers the reference implementations.
    from torch._decomp import decomposition_table
    from torch._inductor.decomposition import decompositions

    # The compiler's table comes last, since it has exceptions for its own code.
    return decomposition_table.get(op) or decompositions.get(op)
