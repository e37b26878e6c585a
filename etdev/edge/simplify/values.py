"""Values of nodes: which ops can be reasoned about, and when two values look the same."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from etdev.graph.nodes import op_name, pieces_of
from etdev.graph.ops import is_functional
from etdev.upstream.operators import OpOverload, base_name, overload_of

# What may be read in place of a node; or a simpler op that it can be, with its arguments.
Simpler = Node | tuple[Any, tuple[Any, ...]]

# They compute nothing: what they return are elements of what they are given.
_MOVES = (
    *("alias", "cat", "clone", "detach", "embedding", "expand", "gather", "index", "index_select"),
    *("permute", "select", "slice", "split", "squeeze", "stack", "t", "transpose", "unsqueeze"),
    *("flip", "repeat", "roll", "view", "_clone_dim_order"),
)
# What other namespaces mean is known to backends alone: quantised ops, an op of the user's own.
_NAMESPACES = ("aten", "dim_order_ops")


def op_of(node: Node) -> OpOverload | None:
    """The operator that a node calls, in whichever dialect; None if it calls something else."""
    return overload_of(node.target) if node.op == "call_function" else None


def is_corrected(node: Node) -> bool:
    """Return True if a plugin wrote it for the same op; then what reads it corrects it."""
    return op_name(node) in pieces_of(node)


def is_random(node: Node) -> bool:
    """Whether what an operator computes is not told by its inputs: it is random, or not set."""
    op = op_of(node)
    assert op
    return torch.Tag.nondeterministic_seeded in op.tags or "empty" in base_name(op)


def moves_only(node: Node) -> bool:
    """Whether an op only moves elements, whose bits stay as they are."""
    op = op_of(node)
    return op is not None and base_name(op).removesuffix("_copy") in _MOVES


def is_plain(node: Node) -> bool:
    """Whether a node is an op of PyTorch's own that computes a tensor and does nothing else."""
    op = op_of(node)
    return (
        op is not None
        and op.namespace in _NAMESPACES
        and is_functional(op)
        and isinstance(node.meta.get("val"), torch.Tensor)
    )


def looks_like(value: Any, other: Any) -> bool:
    """Whether two values have dtype, sizes and memory layout in common, for any dynamic size."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return (
        value.dtype == other.dtype
        and value.device == other.device
        and same_sizes(value.shape, other.shape)
        and same_sizes(value.stride(), other.stride())
    )


def same_sizes(sizes: Any, others: Any) -> bool:
    """Whether two shapes are the same, for any dynamic size."""
    return len(sizes) == len(others) and all(map(_same_size, sizes, others))


def _same_size(size: Any, other: Any) -> bool:
    if isinstance(size, int) and isinstance(other, int):
        return size == other
    if isinstance(size, torch.SymInt) and isinstance(other, torch.SymInt):
        return bool(size.node.expr == other.node.expr)
    return False


def is_static(value: Any) -> bool:
    """Whether a tensor has no dynamic size."""
    return isinstance(value, torch.Tensor) and all(isinstance(size, int) for size in value.shape)
