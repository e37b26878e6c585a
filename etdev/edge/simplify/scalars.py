"""Arithmetic with a number, replaced by arithmetic with a constant, which backends claim."""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from etdev.edge.simplify.folding import Folding
from etdev.edge.simplify.values import Simpler, looks_like
from etdev.graph.nodes import op_name
from etdev.upstream.operators import edge_ops

_PACKETS = {f"aten.{name}.Scalar": name for name in ("add", "sub", "mul", "div")}


def as_tensor(node: Node, folding: Folding) -> Simpler | None:
    """Return a float32 op with its number as a constant; None for other nodes.

    Kernels round the number to float32 either way; in other dtypes they don't.
    """
    packet = _PACKETS.get(op_name(node))
    value = node.meta["val"]
    # Kernels refuse tensors of different layouts, and a single number has only one.
    if packet is None or value.dtype != torch.float32 or not value.is_contiguous():
        return None
    source, number, *rest = node.args
    if not isinstance(source, Node) or not looks_like(source.meta["val"], value) or not value.dim():
        return None
    if rest or node.kwargs or isinstance(number, bool) or not isinstance(number, (int, float)):
        return None
    # A float32 can't hold it, and kernels then compute different results.
    if abs(number) > torch.finfo(torch.float32).max and math.isfinite(number):
        return None
    constant = folding.constant(torch.full((1,), number, dtype=torch.float32), node)
    return getattr(edge_ops.edge.aten, packet).Tensor, (source, constant)
