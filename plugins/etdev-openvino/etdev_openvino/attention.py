"""The calls of `scaled_dot_product_attention` that OpenVINO computes whole, as PyTorch does.

Every rule was seen with OpenVINO 2025.4 in ExecuTorch's runtime. What is refused is decomposed, and
OpenVINO is then asked for the pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.graph import op_name

# A short code to group by, and the reason in words.
Reason = tuple[str, str]

OP = torch.ops.aten.scaled_dot_product_attention.default
NAME = str(OP)
_EXPAND = "aten.expand_copy.default"


def is_attention(node: Node) -> bool:
    """Return True if a node is attention as a whole."""
    return node.op == "call_function" and op_name(node) == NAME


def draws_nothing(node: Node) -> bool:
    """Return True for attention without dropout, though torch tags the op as random."""
    args: Any = node.args
    return is_attention(node) and not any(args[4:5]) and not node.kwargs.get("dropout_p")


def problem(node: Node, program: ExportedProgram, constants: Mapping[str, str]) -> Reason | None:
    """Return why OpenVINO can't have attention as a whole; or None, as for every other op.

    Args:
        node: The node.
        program: Its program.
        constants: Names in the state dict of the graph inputs that are fixed.
    """
    if not is_attention(node):
        return None
    query: Any = node.args[0]
    if query.meta["val"].dim() < 3:
        return "rank", "OpenVINO can't compile attention without a batch"
    if node.kwargs.get("enable_gqa"):
        return "arguments", "OpenVINO can't compile attention whose heads share keys"
    if not _shows_every_row(_mask_of(node), program, constants):
        return "mask", "OpenVINO returns NaN for rows that a mask hides, where PyTorch returns 0"
    return None


def _mask_of(node: Node) -> Any:
    return node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")


def _shows_every_row(mask: Any, program: ExportedProgram, constants: Mapping[str, str]) -> bool:
    """Return True if the mask, if any, is known to hide no row of the scores altogether."""
    if mask is None:
        return True
    value = _known(mask, program, constants)
    if value is None:
        return False
    shown = value if value.dtype == torch.bool else value > -torch.inf
    return bool(shown.any(-1).all())


def _known(
    node: Node, program: ExportedProgram, constants: Mapping[str, str]
) -> torch.Tensor | None:
    """Return the value of a constant, or of one that is only expanded; None of anything else."""
    if node.op == "call_function" and op_name(node) == _EXPAND:
        source: Any = node.args[0]
        value = _known(source, program, constants)
        return None if value is None else value.expand(node.meta["val"].shape)
    target = constants.get(node.name, "")
    value = program.state_dict.get(target, program.constants.get(target))
    return value if isinstance(value, torch.Tensor) else None
