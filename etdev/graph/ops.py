"""Ops: names of ATen ops in the edge dialect, where a view is a copy, and the way back."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload

# Calls an op in its order among others with effects, by a token that each call takes and returns.
ORDERED = torch.ops.higher_order.with_effects
_FLOWS = ("cond", "map_impl", "scan", "while_loop")


def edge_name(op: Any) -> str:
    """An ATen op's name after the edge conversion: `aten.split_copy.Tensor` for `split`."""
    if isinstance(op, OpOverload) and op.namespace == "aten" and _is_view(op):
        return f"aten.{op._opname}_copy.{op._overloadname}"
    return str(op)


def aten_op(target: Any) -> Any:
    """The ATen op that an edge op was before: `aten.split.Tensor` for `split_copy`."""
    op = target if isinstance(target, OpOverload) else getattr(target, "_op", target)
    if isinstance(op, OpOverload) and op.namespace == "aten" and op._opname.endswith("_copy"):
        packet = getattr(torch.ops.aten, op._opname.removesuffix("_copy"), None)
        before = getattr(packet, op._overloadname, None)
        if before is not None and _is_view(before):
            return before
    return op


def is_functional(op: OpOverload) -> bool:
    """Whether an op writes to nothing and returns nothing that shares memory with its inputs."""
    schema = op._schema
    return not schema.is_mutable and not any(value.alias_info for value in schema.returns)


def _is_view(op: OpOverload) -> bool:
    first = op._schema.arguments[:1]
    return any(value.alias_info and not value.alias_info.is_write for value in first)


def is_flow(op: Any) -> bool:
    """Whether an op calls graphs of its own in a way that ExecuTorch knows, as `cond` does."""
    return isinstance(op, HigherOrderOperator) and op.__name__ in _FLOWS
