"""Inductor: constants that it would compute wrongly with, were they inside of a delegate."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.ops import aten_op
from etdev.schema.partition import INDUCTOR

# Inductor makes a number of a constant without dimensions and then doesn't take it for an integer.
# So it divides as floats are divided, which rounds to zero in C++ and to float32 in Triton.
_QUOTIENTS = (
    *(torch.ops.aten.floor_divide.default, torch.ops.aten.div.Tensor_mode),
    torch.ops.aten.fmod.Tensor,
)
# It has no code for the item of such a constant.
_ITEMS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)


def misread(program: ExportedProgram, backend_id: str) -> set[str]:
    """Names of the constants that must stay inputs of a backend's delegates.

    Args:
        program: Edge-dialect program.
        backend_id: Only those of AOTInductor have such constants.
    """
    if backend_id not in INDUCTOR:
        return set()
    nodes = program.graph.find_nodes(op="placeholder")
    return {node.name for node in nodes if _is_integer(node) and any(map(_misreads, node.users))}


def _is_integer(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.dim() and not value.is_floating_point()


def _misreads(node: Node) -> bool:
    return aten_op(node.target) in (*_QUOTIENTS, *_ITEMS)
