"""Names of ATen ops in the edge dialect, where a view is a copy, and the ops behind them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from etdev.upstream.operators import (
    HigherOrderOperator,
    OpOverload,
    base_name,
    overload_name,
    overload_of,
    schema_of,
)

# Calls an op with effects; the calls keep their order by a token that each takes and returns.
ORDERED = torch.ops.higher_order.with_effects
_FLOWS = ("cond", "map_impl", "scan", "while_loop")


def edge_name(op: Any) -> str:
    """Return an ATen op's name in the edge dialect: `aten.split_copy.Tensor` for `split`."""
    if isinstance(op, OpOverload) and op.namespace == "aten" and _is_view(op):
        return f"aten.{base_name(op)}_copy.{overload_name(op)}"
    return str(op)


def aten_op(target: Any) -> Any:
    """Return the ATen op that an edge op was before: `aten.split.Tensor` for `split_copy`."""
    op = overload_of(target)
    if op and op.namespace == "aten" and base_name(op).endswith("_copy"):
        packet = getattr(torch.ops.aten, base_name(op).removesuffix("_copy"), None)
        before = getattr(packet, overload_name(op), None)
        if before is not None and _is_view(before):
            return before
    return op or target


def is_functional(op: OpOverload) -> bool:
    """Return True if an op writes to nothing and returns no memory of its inputs."""
    schema = schema_of(op)
    return not schema.is_mutable and not any(value.alias_info for value in schema.returns)


def _is_view(op: OpOverload) -> bool:
    first = schema_of(op).arguments[:1]
    return any(value.alias_info and not value.alias_info.is_write for value in first)


def is_flow(op: Any) -> bool:
    """Return True if an op calls graphs in a way that ExecuTorch knows, as `cond` does."""
    return isinstance(op, HigherOrderOperator) and op.__name__ in _FLOWS


@cache
def own_pieces(op: Any) -> Callable[..., Any] | None:
    """Return how an op of another library is written in torch, if it has no form for a kernel.

    torch keeps such an op whole, as torchao wants of its quantisers; a backend may take it so.
    """
    if not isinstance(op, OpOverload) or op.namespace in ("aten", "prims"):
        return None
    overloads = op.overloadpacket.overloads()
    if any(name.endswith("out") for name in overloads):
        return None
    table = torch.export.default_decompositions()
    # The table's `get` is that of dict, which doesn't find entries made on demand.
    return table[op] if op in table else None  # noqa: SIM401
