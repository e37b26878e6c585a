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
