"""Facts about the values of nodes that the simplifications rely on."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from etdev.graph.nodes import op_name, pieces_of
from etdev.graph.ops import is_functional
from etdev.upstream.operators import OpOverload, base_name, overload_of

# A node to read in place of another, or a simpler op to call in its place, with its arguments.
Simpler = Node | tuple[Any, tuple[Any, ...]]

# Ops that return elements of their inputs and compute nothing.
_MOVES = (
    *("alias", "cat", "clone", "detach", "embedding", "expand", "gather", "index", "index_select"),
    *("permute", "select", "slice", "split", "squeeze", "stack", "t", "transpose", "unsqueeze"),
    *("flip", "repeat", "roll", "view", "_clone_dim_order"),
)
# Only backends know the meaning of ops in other namespaces, such as quantised ops.
_NAMESPACES = ("aten", "dim_order_ops")


def op_of(node: Node) -> OpOverload | None:
    """Return the overload that a node calls, in either dialect, or None."""
    return overload_of(node.target) if node.op == "call_function" else None


def is_corrected(node: Node) -> bool:
    """Return True if a plugin wrote a node for the same op; its readers correct the result."""
    return op_name(node) in pieces_of(node)


def is_random(node: Node) -> bool:
    """Return True if the inputs of an op don't decide its result: it is random, or not set."""
    op = op_of(node)
    assert op
    return torch.Tag.nondeterministic_seeded in op.tags or "empty" in base_name(op)


def moves_only(node: Node) -> bool:
    """Return True if an op only moves elements, whose bits stay as they are."""
    op = op_of(node)
    return op is not None and base_name(op).removesuffix("_copy") in _MOVES


def is_plain(node: Node) -> bool:
    """Return True if a node is an op of PyTorch's that computes a tensor and does nothing else."""
    op = op_of(node)
    return (
        op is not None
        and op.namespace in _NAMESPACES
        and is_functional(op)
        and isinstance(node.meta.get("val"), torch.Tensor)
    )


def looks_like(value: Any, other: Any) -> bool:
    """Return True if two tensors have dtype, sizes and memory layout in common, for any size."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return (
        value.dtype == other.dtype
        and value.device == other.device
        and same_sizes(value.shape, other.shape)
        and same_sizes(value.stride(), other.stride())
    )


def same_sizes(sizes: Any, others: Any) -> bool:
    """Return True if two shapes are the same, for any dynamic size."""
    return len(sizes) == len(others) and all(map(_same_size, sizes, others))


def _same_size(size: Any, other: Any) -> bool:
    if isinstance(size, int) and isinstance(other, int):
        return size == other
    if isinstance(size, torch.SymInt) and isinstance(other, torch.SymInt):
        return bool(size.node.expr == other.node.expr)
    return False


def is_static(value: Any) -> bool:
    """Return True if a value is a tensor without a dynamic size."""
    return isinstance(value, torch.Tensor) and all(isinstance(size, int) for size in value.shape)
