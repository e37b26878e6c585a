"""Faults of ExecuTorch's emission and verifier: memory orders, copies, and ops without kernels."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from executorch.exir.tensor import TensorSpec, contiguous_stride_from_shape, dim_order_from_stride
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etdev.graph.layout import is_known_order
from etdev.graph.nodes import graph_modules, op_name
from etdev.graph.ops import ORDERED, aten_op
from etdev.graph.rebuild import with_changed
from etdev.schema.quirk import Nodes, Quirk, Refusal, Stage
from etdev.upstream.operators import OpOverload, schema_of
from etdev.upstream.trees import pytree

aten = torch.ops.aten
_LEFT = (aten.__lshift__.Scalar, aten.bitwise_left_shift.Tensor_Scalar)
_RIGHT = (aten.__rshift__.Scalar, aten.bitwise_right_shift.Tensor_Scalar)
_QUANTISED = "quantized_decomposed."
# Ops of sizes have no out variants and need none.
_TORCH = ("aten", "prim", "prims", "executorch_prim")
_ANY_ORDER = ("aten.index.Tensor", "aten.sym_size.int", "sym_size.int")


def unknown_orders(module: GraphModule) -> list[TensorSpec]:
    """Return the memory specs that are neither contiguous nor channels last."""
    nodes = (node for inner in graph_modules(module) for node in inner.graph.nodes)
    return [s for node in nodes for s in _specs(node) if not is_known_order(s.dim_order)]


def make_contiguous(module: GraphModule, specs: Sequence[TensorSpec]) -> GraphModule:
    """Write the contiguous order into memory specs."""
    for spec in specs:
        spec.stride = contiguous_stride_from_shape(spec.shape)
        spec.dim_order = tuple(range(len(spec.shape)))
    return module


def _is_transposed(nonzero: Node) -> bool:
    """Return True if coordinates have several dimensions, or a kernel sees their order."""
    if nonzero.all_input_nodes[0].meta["val"].dim() > 1:
        return True
    return any(user.op != "output" and op_name(user) not in _ANY_ORDER for user in nonzero.users)


def _is_written_otherwise(node: Node) -> bool:
    """Return True if the strides of a node stand for another order than its argument."""
    order, value = node.kwargs.get("dim_order"), node.meta.get("val")
    if order is None or not isinstance(value, torch.Tensor):
        return False
    return tuple(order) != tuple(dim_order_from_stride(value.stride()))  # type: ignore[arg-type]


def _has_other_order(node: Node) -> bool:
    """Return True if a node is told another order of dimensions than its memory spec has."""
    order: Any = node.kwargs.get("dim_order")
    return order is not None and list(order) != _written_order(node)


def tell_written_order(module: GraphModule, nodes: Sequence[Node]) -> GraphModule:
    """Give nodes the order of the memory that they write as their argument."""
    for node in nodes:
        node.kwargs = {**node.kwargs, "dim_order": _written_order(node)}
    return module


def _written_order(node: Node) -> list[Any] | None:
    order: Any = node.kwargs.get("dim_order")
    return next((list(spec.dim_order) for spec in _specs(node)), list(order) if order else None)


def _specs(node: Node) -> Iterator[TensorSpec]:
    for spec in pytree.tree_leaves(node.meta.get("spec")):
        if isinstance(spec, TensorSpec):
            yield spec


def copy_at_once(module: GraphModule, nodes: Sequence[Node]) -> GraphModule:
    """Take `non_blocking=True` from nodes."""
    for node in nodes:
        node.kwargs = {**node.kwargs, "non_blocking": False}
    return module


def load_quantised_kernels(program: ExportedProgram, nodes: Sequence[Node]) -> ExportedProgram:
    """Import the portable kernels of quantised ops, which registers their out variants."""
    importlib.import_module("executorch.kernels.quantized")
    return program


def _has_no_out_variant(node: Node) -> bool:
    """Return True if a node has effects, or is an op of a library without an out variant."""
    if node.target is ORDERED:
        return True
    op = aten_op(node.target)
    if not isinstance(op, OpOverload) or op.namespace in _TORCH:
        return False
    packet = op.overloadpacket
    schemas = (schema_of(getattr(packet, name)) for name in packet.overloads())
    return not any(argument.is_out for schema in schemas for argument in schema.arguments)


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


UNKNOWN_ORDERS = Quirk(
    name="unknown-orders",
    stage=Stage.EMIT,
    summary="Values in a memory order other than contiguous or channels last, such as the result "
    "of `nonzero`, are declared in that order, which no kernel writes.",
    upstream="not reported; exir/tensor.py, TensorSpec.from_tensor",
    affects="executorch<1.6",
    find=unknown_orders,
    fix=make_contiguous,
    in_loop=Refusal(
        "ExecuTorch would transpose {found.name}, the result of nonzero{where}, or fail on it at "
        "run time",
        "lower with etdev.Lowerer, which returns it as it is",
        find=Nodes((aten.nonzero.default,), _is_transposed),
    ),
)
UNWRITTEN_ORDERS = Quirk(
    name="unwritten-orders",
    stage=Stage.EMIT,
    summary="`_to_dim_order_copy` compares its argument with the memory that it writes, where one "
    "order has several forms if a dimension has one element.",
    upstream="not reported; kernels/portable/cpu/op__to_dim_order_copy.cpp, check_dim_order",
    affects="executorch<1.6",
    find=Nodes(only=_has_other_order, branches=True),
    fix=tell_written_order,
    in_loop=Refusal(
        "the portable kernel of {op} fails or is wrong for what {found.name} gives it{where}",
        "lower with etdev.Lowerer, which computes it with other ops",
        find=Nodes(only=_is_written_otherwise, branches=True),
    ),
)
NON_BLOCKING_COPIES = Quirk(
    name="non-blocking-copies",
    stage=Stage.EMIT,
    summary="No kernel copies later, and copies with `non_blocking=True` fail at run time.",
    upstream="not reported; kernels/portable/cpu/op__to_dim_order_copy.cpp, _to_dim_order_copy_out",
    affects="executorch<1.6",
    find=Nodes(only=lambda node: bool(node.kwargs.get("non_blocking")), branches=True),
    fix=copy_at_once,
)
QUANTISED_KERNELS = Quirk(
    name="quantised-kernels",
    stage=Stage.PLANNED,
    summary="Out variants of quantised ops are unknown until `executorch.kernels.quantized` has "
    "been imported.",
    upstream="not reported; exir/passes/__init__.py, ToOutVarPass",
    affects="executorch<1.6",
    find=Nodes(only=lambda node: op_name(node).startswith(_QUANTISED), branches=True),
    fix=load_quantised_kernels,
)
MISSING_OUT_VARIANTS = Quirk(
    name="missing-out-variants",
    stage=Stage.EMIT,
    summary="An op without an out variant has no kernel, and fails in ExecuTorch's passes with an "
    "error of its own.",
    upstream="not reported; exir/passes/__init__.py, ToOutVarPass",
    affects="executorch<1.6",
    find=Nodes(only=_has_no_out_variant, branches=True),
    symptom=lambda error: True,
    refusal=Refusal(
        "no plugin took {ops}, and ExecuTorch has no kernel without an out variant of the op",
        "write it with other ops, give it to a plugin, or register its out variant and kernel",
    ),
)
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
QUIRKS: tuple[Quirk, ...] = (
    # Under `etdev.partitioner()` alone.
    SHIFTS,
    MASKED_SELECTS,
    QUANTISED_KERNELS,
    UNKNOWN_ORDERS,
    # After the orders are settled, since it compares with them.
    UNWRITTEN_ORDERS,
    NON_BLOCKING_COPIES,
    MISSING_OUT_VARIANTS,
)
