"""Faults of ExecuTorch's own loop alone; `Lowerer` converts these ops otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from etdev.edge.opset import is_unknown_of_numbers
from etdev.graph.rebuild import with_changed
from etdev.schema.quirk import Nodes, Quirk, Refusal, Stage

aten = torch.ops.aten
_LEFT = (aten.__lshift__.Scalar, aten.bitwise_left_shift.Tensor_Scalar)
_RIGHT = (aten.__rshift__.Scalar, aten.bitwise_right_shift.Tensor_Scalar)
_LOSSES = (aten.multilabel_margin_loss.default, aten.multilabel_margin_loss_forward.default)


def _is_factor(node: Node) -> bool:
    """Return True if a node shifts by so few bits that the factor is a positive number."""
    (x, places), dtype = node.args, node.meta["val"].dtype
    same = isinstance(x, Node) and x.meta["val"].dtype == dtype
    return same and isinstance(places, int) and 0 <= places < torch.iinfo(dtype).max.bit_length()


def multiply(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Write shifts as products, and as quotients rounded down."""
    return with_changed(program, found, _multiply)


def _multiply(graph: Graph, node: Node) -> None:
    x, places = node.args
    if node.target in _RIGHT:
        node.kwargs = {"rounding_mode": "floor"}
    node.target = aten.mul.Tensor if node.target in _LEFT else aten.div.Tensor_mode
    node.args = (x, 1 << places)  # type: ignore[operator]


def _has_one_shape(node: Node) -> bool:
    return len({str(argument.meta["val"].shape) for argument in node.all_input_nodes}) == 1


def index(program: ExportedProgram, found: Sequence[Node]) -> ExportedProgram:
    """Select by masks as indexing does."""
    return with_changed(program, found, _index)


def _index(graph: Graph, node: Node) -> None:
    node.target, node.args = aten.index.Tensor, (node.args[0], [node.args[1]])


SHIFTS = Quirk(
    name="shift-ops",
    stage=Stage.LOOP,
    summary="Shifts have kernels, and are refused since they are not Core ATen.",
    upstream="not reported; executorch/exir/verification/verifier.py, check_valid_op",
    affects="executorch<1.6",
    find=Nodes((*_LEFT, *_RIGHT), _is_factor),
    fix=multiply,
)
MASKED_SELECTS = Quirk(
    name="masked-selects",
    stage=Stage.LOOP,
    summary="masked_select has a kernel, and is refused since it is not Core ATen.",
    upstream="not reported; executorch/exir/verification/verifier.py, check_valid_op",
    affects="executorch<1.6",
    find=Nodes((aten.masked_select.default,), _has_one_shape),
    fix=index,
)
NUMBER_FUNCTIONS = Quirk(
    name="number-functions",
    stage=Stage.LOOP,
    summary="ExecuTorch lacks ops for functions of symbolic numbers such as torch.sym_ite.",
    upstream="not reported; executorch/exir/passes/executorch_prim_ops_registry.py, is_sym_op",
    affects="executorch<1.6",
    find=Nodes(only=is_unknown_of_numbers, branches=True),
    # `Lowerer` refuses them with all other ops that are not in the edge dialect.
    in_loop=Refusal("ExecuTorch has no op for {op} of numbers{where}", "compute it with tensors"),
)
WRONG_LOSSES = Quirk(
    name="wrong-losses",
    stage=Stage.LOOP,
    summary="torch decomposes multilabel_margin_loss into something else.",
    upstream="not reported; torch/_decomp/decompositions.py, multilabel_margin_loss_forward",
    affects="torch<2.15",
    find=Nodes(_LOSSES),
    in_loop=Refusal(
        "torch decomposes {op} wrongly{where}",
        "lower with etdev.Lowerer, which has a decomposition of its own",
    ),
)
QUIRKS = (SHIFTS, MASKED_SELECTS, NUMBER_FUNCTIONS, WRONG_LOSSES)
