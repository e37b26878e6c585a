"""Layers, and how their nodes and values are read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from etdev.graph import op_name

CONVOLUTION = "convolution"
NORM = "_native_batch_norm_legit_no_training"
# Positions of the activation, the weight and the bias among the arguments.
LAYERS = {CONVOLUTION: (0, 1, 2), "linear": (0, 1, 2), "addmm": (1, 2, 0), "mm": (0, 1, None)}


def values(nodes: Iterable[Node]) -> list[torch.Tensor]:
    """Return the tensors among what nodes give; of several results the first, as XNNPACK does."""
    given = [node.meta.get("val") for node in nodes]
    first = [value[0] if isinstance(value, tuple | list) and value else value for value in given]
    return [value for value in first if isinstance(value, torch.Tensor)]


def dtypes(nodes: Iterable[Node]) -> set[torch.dtype]:
    """Return the types of the tensors that nodes give."""
    return {value.dtype for value in values(nodes)}


def shape_of(node: Node) -> tuple[Any, ...]:
    """Return the sizes of what a node gives."""
    return next((tuple(value.shape) for value in values([node])), ())


def is_layer(node: Node) -> bool:
    """Return True if a node is a layer with a weight."""
    return short(node) in LAYERS


def is_one_dimensional(layer: Node) -> bool:
    """Return True if a layer runs along one dimension, beside those of batch and channels."""
    return len(shape_of(layer)) == 3


def short(node: Any) -> str:
    """Return the op of a node without namespace and overload: `add`; empty if it calls none."""
    if not isinstance(node, Node) or node.op != "call_function":
        return ""
    return op_name(node).rpartition(".")[0].rpartition(".")[2]


def chain(node: Node | None) -> list[Node]:
    """Return a node and the nodes that its value is prepared from, such as a weight, in order."""
    nodes = [node] if node is not None else []
    while nodes and nodes[-1].op == "call_function" and nodes[-1].all_input_nodes:
        nodes.append(nodes[-1].all_input_nodes[0])
    return nodes


def argument(node: Node, index: int | None) -> Node | None:
    """Return the node that a positional argument is, if it is one."""
    value = node.args[index] if index is not None and index < len(node.args) else None
    return value if isinstance(value, Node) else None


def as_image(x: Tensor) -> Tensor:
    """View a tensor as images: series in one row, volumes with their slices one above the other.

    Each number of a row is an image.
    """
    if x.dim() == 2:
        return x.view(*x.shape, 1, 1)
    return x.view(x.shape[0], x.shape[1], math.prod(x.shape[2:-1]), x.shape[-1])
