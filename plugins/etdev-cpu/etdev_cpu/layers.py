"""Convolutions and batch norms, whose weights XNNPACK prepares when it compiles."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from etdev.graph import op_name

CONVOLUTION = "convolution"
NORM = "_native_batch_norm_legit_no_training"

_ONE_DIMENSIONAL = 3


def shape_of(layer: Node) -> tuple[Any, ...]:
    """Return the sizes of what a layer gives, or of the first of several results."""
    value = layer.meta.get("val")
    first = value[0] if isinstance(value, (list, tuple)) else value
    return tuple(getattr(first, "shape", ()))


def is_one_dimensional(layer: Node) -> bool:
    """Return True if it runs along one dimension, beside those of batch and channels."""
    return len(shape_of(layer)) == _ONE_DIMENSIONAL


def short(node: Node) -> str:
    """Return an op without namespace and overload: `add`."""
    return op_name(node).rpartition(".")[0].rpartition(".")[2]


def chain(node: Node | None) -> list[Node]:
    """Return a node and the nodes that its value is prepared from, such as a weight, in order."""
    nodes = [node] if node is not None else []
    while nodes and nodes[-1].op == "call_function" and nodes[-1].all_input_nodes:
        nodes.append(nodes[-1].all_input_nodes[0])
    return nodes


def argument(node: Node, index: int) -> Node | None:
    """Return the node that a positional argument is, if it is one."""
    value = node.args[index] if index < len(node.args) else None
    return value if isinstance(value, Node) else None
