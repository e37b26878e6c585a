"""Integer constants that compute wrong results once a compiler folds them into numbers."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph.ops import aten_op

# Generated code may take such a number for a float, whose quotients round to zero or to float32.
_QUOTIENTS = (
    *(torch.ops.aten.floor_divide.default, torch.ops.aten.div.Tensor_mode),
    torch.ops.aten.fmod.Tensor,
)
# There may be no code for the item of a number.
_ITEMS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)


def folded_integers(program: ExportedProgram) -> set[str]:
    """Return the names of integer constants without dimensions that quotients or items read.

    Leave them out in `claim_constants` if your backend's compiler folds constants into numbers.

    Args:
        program: Edge-dialect program.
    """
    nodes = program.graph.find_nodes(op="placeholder")
    return {node.name for node in nodes if _is_integer(node) and any(map(_reads, node.users))}


def _is_integer(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.dim() and not value.is_floating_point()


def _reads(node: Node) -> bool:
    return aten_op(node.target) in (*_QUOTIENTS, *_ITEMS)
