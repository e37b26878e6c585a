"""Faults of ExecuTorch's own loop alone; `Lowerer` converts these ops otherwise."""

from __future__ import annotations

from functools import partial

import torch
from torch.fx import Node

from etdev.graph.rebuild import with_changed
from etdev.schema.quirk import Nodes, Quirk, Stage

aten = torch.ops.aten
_LEFT = (aten.__lshift__.Scalar, aten.bitwise_left_shift.Tensor_Scalar)
_RIGHT = (aten.__rshift__.Scalar, aten.bitwise_right_shift.Tensor_Scalar)


def _is_factor(node: Node) -> bool:
    """Return True if a node shifts by so few bits that the factor is a positive number."""
    (x, places), dtype = node.args, node.meta["val"].dtype
    same = isinstance(x, Node) and x.meta["val"].dtype == dtype
    return same and isinstance(places, int) and 0 <= places < torch.iinfo(dtype).max.bit_length()


def _multiply(node: Node, _: Node) -> None:
    """Write a shift as a product, or as a quotient rounded down."""
    x, places = node.args
    if node.target in _RIGHT:
        node.kwargs = {"rounding_mode": "floor"}
    node.target = aten.mul.Tensor if node.target in _LEFT else aten.div.Tensor_mode
    node.args = (x, 1 << places)  # type: ignore[operator]


def _has_one_shape(node: Node) -> bool:
    return len({str(argument.meta["val"].shape) for argument in node.all_input_nodes}) == 1


def _index(node: Node, _: Node) -> None:
    """Select by a mask as indexing does."""
    node.target, node.args = aten.index.Tensor, (node.args[0], [node.args[1]])


SHIFTS = Quirk(
    name="shift-ops",
    stage=Stage.LOOP,
    summary="Shifts have kernels, and are refused since they are not Core ATen.",
    upstream="not reported; executorch/exir/verification/verifier.py, check_valid_op",
    affects="executorch<1.6",
    find=Nodes((*_LEFT, *_RIGHT), _is_factor),
    fix=partial(with_changed, change=_multiply),
)
MASKED_SELECTS = Quirk(
    name="masked-selects",
    stage=Stage.LOOP,
    summary="masked_select has a kernel, and is refused since it is not Core ATen.",
    upstream="not reported; executorch/exir/verification/verifier.py, check_valid_op",
    affects="executorch<1.6",
    find=Nodes((aten.masked_select.default,), _has_one_shape),
    fix=partial(with_changed, change=_index),
)
QUIRKS = (SHIFTS, MASKED_SELECTS)
