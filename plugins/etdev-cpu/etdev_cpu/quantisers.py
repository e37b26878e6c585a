"""Quantisers: which of them XNNPACK reads as PyTorch does, and may leave out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from executorch.backends.xnnpack.utils.quant_utils import (
    is_dequant,
    is_dynamic_qdq,
    is_qparam,
    is_quant,
)
from torch.fx import Node

from etdev.graph import op_name

# A short code to group by, and the reason in words.
Reason = tuple[str, str]


def short(node: Node) -> str:
    """An op without namespace and overload: `add`."""
    return op_name(node).rpartition(".")[0].rpartition(".")[2]


def is_quantiser(node: Node) -> bool:
    """Whether a node changes between floats and the integers that stand for them."""
    return bool(is_quant(node) or is_dequant(node) or is_qparam(node))


def quantiser_problem(node: Node) -> Reason | None:
    """Why XNNPACK computes something else for a quantiser or dequantiser."""
    source = node.all_input_nodes[0]
    static = "per_tensor" in short(node) and not is_dynamic_qdq(node)
    if is_quant(node) and static:
        low, high, dtype = node.args[3:6]
        limits = torch.iinfo(dtype)  # type: ignore[arg-type]
        if (low, high) != (limits.min, limits.max):
            return "range", f"XNNPACK quantises to all of {limits.dtype}, not to {low} to {high}"
    if is_dequant(node) and is_quant(source) and node.args[1:3] != source.args[1:3]:
        return "quantised", "XNNPACK ignores that its scale is not the quantiser's"
    return None


def read_elsewhere(groups: Sequence[list[Node]], implicit: Collection[str]) -> dict[str, Reason]:
    """Why layers can't be taken with a dequantiser that other ops read, by the layers' nodes.

    XNNPACK leaves out an implicit dequantiser, so the other ops would read its integers.

    Args:
        groups: Atomic groups.
        implicit: Names of the nodes that their layer makes unnecessary.
    """
    problems: dict[str, Reason] = {}
    kept = [group for group in groups if len(group) > 1]
    while unsound := [group for group in kept if _leaks(group, kept, implicit)]:
        kept = [group for group in kept if group not in unsound]
        text = "its dequantiser is read by other ops too, and XNNPACK would leave it out"
        problems.update((node.name, ("shared", text)) for group in unsound for node in group)
    return problems


def _leaks(group: list[Node], kept: Sequence[list[Node]], implicit: Collection[str]) -> bool:
    for node in group:
        if node.name in implicit and is_dequant(node) and len(node.users) > 1:
            inside = {other for peers in kept if node in peers for other in peers}
            if not inside.issuperset(node.users):
                return True
    return False
