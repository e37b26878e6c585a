"""Shifts by known numbers of bits, for ExecuTorch's own loop, which takes no other."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.graph.rebuild import with_changed

aten = torch.ops.aten
_LEFT = (aten.__lshift__.Scalar, aten.bitwise_left_shift.Tensor_Scalar)
_RIGHT = (aten.__rshift__.Scalar, aten.bitwise_right_shift.Tensor_Scalar)


def with_multiplied_shifts(program: ExportedProgram) -> ExportedProgram:
    """Write shifts as products, and as quotients rounded down, which are Core ATen.

    Args:
        program: An ATen program; it is not changed.
    """
    return with_changed(program, filter(_is_plain, program.graph.nodes), _multiply)


def _multiply(graph: Graph, node: Node) -> None:
    x, places = node.args
    if node.target in _RIGHT:
        node.kwargs = {"rounding_mode": "floor"}
    node.target = aten.mul.Tensor if node.target in _LEFT else aten.div.Tensor_mode
    node.args = (x, 1 << places)  # type: ignore[operator]


def _is_plain(node: Node) -> bool:
    """Whether a node shifts by so few bits that the factor is a positive number of its dtype."""
    if node.target not in (*_LEFT, *_RIGHT):
        return False
    (x, places), dtype = node.args, node.meta["val"].dtype
    same = isinstance(x, Node) and x.meta["val"].dtype == dtype
    return same and isinstance(places, int) and 0 <= places < torch.iinfo(dtype).max.bit_length()
