"""Facts about the values of nodes that the simplifications rely on."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from etdev.graph.ops import is_functional
from etdev.upstream.operators import OpOverload, base_name, overload_of

# A node to read in place of another, or a simpler op to call in its place, with its arguments.
Simpler = Node | tuple[Any, tuple[Any, ...]]

# Only backends know the meaning of ops in other namespaces, such as quantised ops.
_NAMESPACES = ("aten", "dim_order_ops")


def op_of(node: Node) -> OpOverload | None:
    """Return the overload that a node calls, in either dialect, or None."""
    return overload_of(node.target) if node.op == "call_function" else None


def is_random(node: Node) -> bool:
    """Return True if the inputs of an op don't decide its result: it is random, or not set."""
    op = op_of(node)
    assert op
    return torch.Tag.nondeterministic_seeded in op.tags or "empty" in base_name(op)


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
    # Compared as text, since comparing symbolic sizes would fix them.
    one, another = ((v.dtype, v.device, str(v.shape), str(v.stride())) for v in (value, other))
    return one == another


def is_static(value: Any) -> bool:
    """Return True if a value is a tensor without a dynamic size."""
    return isinstance(value, torch.Tensor) and all(isinstance(size, int) for size in value.shape)
