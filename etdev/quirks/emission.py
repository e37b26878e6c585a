"""Faults of ExecuTorch's emission and verifier: memory orders, copies and quantised ops."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import evolve
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.tensor import TensorSpec, contiguous_stride_from_shape, dim_order_from_stride
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etdev.graph.layout import has_plain_order, is_known_order
from etdev.graph.nodes import graph_modules, op_name
from etdev.graph.ops import ORDERED
from etdev.schema.quirk import Nodes, Quirk, Rejection, Row
from etdev.schema.stages import EMIT, PLAN_MEMORY, OwnProgram
from etdev.upstream.operators import EdgeOpOverload
from etdev.upstream.trees import pytree

# torch.export calls a custom op that writes to its inputs through this one.
_FUNCTIONALIZED = torch.ops.higher_order.auto_functionalized_v2
_CHANNELS_LAST = (0, 2, 3, 1)
_QUANTISED = "quantized_decomposed."
# Their kernels fail in another order than their input's.
_TRANSFORMS = ("aten._fft_r2c.default", "aten._fft_c2r.default")
_ANY_ORDER = ("aten.index.Tensor", "aten.sym_size.int", "sym_size.int")


def unknown_orders(module: GraphModule) -> list[TensorSpec]:
    """Return the memory specs that are neither contiguous nor channels last.

    So are results of delegates that are both, as images of one pixel: backends take them for
    contiguous, and the runtime takes the sizes that they give for those of channels last.
    """
    nodes = [node for inner in graph_modules(module) for node in inner.graph.nodes]
    unknown = [s for node in nodes for s in _specs(node) if not is_known_order(s.dim_order)]
    calls = [node for node in nodes if node.target is executorch_call_delegate]
    given = [s for call in calls for n in (call, *call.users) for s in _specs(n)]
    return unknown + [
        s for s in given if tuple(s.dim_order) == _CHANNELS_LAST and s.shape[2:] == [1, 1]
    ]


def _has_no_out_variant(node: Node) -> bool:
    """Return True if an op of another library than torch's has nothing that a kernel can be."""
    op = node.target
    if not isinstance(op, EdgeOpOverload) or op.namespace == "aten":
        return False
    if op_name(node).startswith(_QUANTISED):
        # Under partitioner() no fix has imported them yet.
        importlib.import_module("executorch.kernels.quantized")
    try:
        return op.to_out_variant() is None
    except RuntimeError:
        return True


def make_contiguous(module: GraphModule, specs: Sequence[TensorSpec]) -> GraphModule:
    """Write the contiguous order into memory specs."""
    for spec in specs:
        spec.stride = contiguous_stride_from_shape(spec.shape)
        spec.dim_order = tuple(range(len(spec.shape)))
    return module


def _is_transposed(node: Node) -> bool:
    """Return True if the order of coordinates, or of a delegate's result, decides a value."""
    if op_name(node) != "aten.nonzero.default":
        called = any(source.target is executorch_call_delegate for source in node.all_input_nodes)
        strict = called or op_name(node) in _TRANSFORMS
        return strict and not has_plain_order(node.meta.get("val"))
    several = node.all_input_nodes[0].meta["val"].dim() > 1
    return several or any(n.op != "output" and op_name(n) not in _ANY_ORDER for n in node.users)


def _is_in_other_order(node: Node) -> bool:
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


def _written_order(node: Node) -> list[int] | None:
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


def load_quantised_kernels(program: OwnProgram, nodes: Sequence[Node]) -> OwnProgram:
    """Import the portable kernels of quantised ops, which registers their out variants."""
    importlib.import_module("executorch.kernels.quantized")
    return program


# A row of the portable plugin refuses in these words, too: most kernels read the plain order alone.
UNREAD_ORDER: Rejection[ExportedProgram | GraphModule] = Rejection(
    "the portable kernel of {op} fails or is wrong for what {found.name} gives it{where}",
    "lower with etdev.Lowerer, which computes it with other ops",
)
UNKNOWN_ORDERS = Quirk(
    name="unknown-orders",
    stage=PLAN_MEMORY,
    summary="Values in a memory order other than contiguous or channels last, such as the result "
    "of `nonzero`, are declared in that order, which no kernel writes.",
    upstream="report written 2026-11-27; executorch/exir/tensor.py, TensorSpec.from_tensor",
    find=unknown_orders,
    fix=make_contiguous,
    in_loop=Rejection(
        "ExecuTorch would transpose {found.name}{where}, or fail on it at run time",
        "lower with etdev.Lowerer, which returns it as it is",
        find=Nodes(only=_is_transposed),
    ),
)
UNWRITTEN_ORDERS = Quirk(
    name="unwritten-orders",
    stage=PLAN_MEMORY,
    summary="`_to_dim_order_copy` compares its argument with the memory that it writes, where one "
    "order has several forms if a dimension has one element.",
    upstream="pytorch/executorch#22520 (PR #22745); "
    "executorch/kernels/portable/cpu/op__to_dim_order_copy.cpp, check_dim_order",
    find=Nodes(only=_has_other_order, branches=True),
    fix=tell_written_order,
    in_loop=evolve(UNREAD_ORDER, find=Nodes(only=_is_in_other_order, branches=True)),
)
NON_BLOCKING_COPIES = Quirk(
    name="non-blocking-copies",
    stage=PLAN_MEMORY,
    summary="No kernel copies later, and copies with `non_blocking=True` fail at run time.",
    upstream="report written 2026-11-27; "
    "executorch/kernels/portable/cpu/op__to_dim_order_copy.cpp, _to_dim_order_copy_out",
    find=Nodes(only=lambda node: bool(node.kwargs.get("non_blocking")), branches=True),
    fix=copy_at_once,
    in_loop=Rejection(
        "the portable kernel of {op} fails on the non_blocking copy {found.name}{where}",
        "copy without non_blocking=True, or lower with etdev.Lowerer",
    ),
)
QUANTISED_KERNELS = Quirk(
    name="quantised-kernels",
    stage=EMIT,
    summary="Out variants of quantised ops are unknown until `executorch.kernels.quantized` has "
    "been imported.",
    upstream="pytorch/executorch#1263; executorch/exir/passes/__init__.py, ToOutVarPass",
    find=Nodes(only=lambda node: op_name(node).startswith(_QUANTISED), branches=True),
    fix=load_quantised_kernels,
)
OPS_WITH_EFFECTS = Quirk(
    name="ops-with-effects",
    stage=EMIT,
    summary="An op with effects, such as a print, has no out variant, and fails as it is emitted.",
    upstream="report written 2026-11-27; executorch/exir/passes/__init__.py, ToOutVarPass",
    find=Nodes((ORDERED, _FUNCTIONALIZED), branches=True),
    refusal=Rejection(
        "no plugin took {ops}, and ExecuTorch can't emit an op with effects",
        "leave it out of the model",
    ),
)
REFERENCE_REPRESENTATIONS = Quirk(
    name="reference-representations",
    stage=EMIT,
    summary="An op that returns another dtype than its own, as PT2E's reference representation "
    "calls it, has no schema, and fails without its line.",
    upstream="pytorch/executorch#6685; executorch/exir/passes/__init__.py, ToOutVarPass",
    find=Nodes((torch.ops.higher_order.out_dtype,), branches=True),
    refusal=Rejection(
        "no plugin took {ops}, and ExecuTorch can't emit an op without a schema",
        "quantise with convert_pt2e(use_reference_representation=False)",
    ),
)
OPS_WITHOUT_OUT_VARIANTS = Quirk(
    name="ops-without-out-variants",
    stage=EMIT,
    summary="An op of another library without an out variant fails without its line.",
    upstream="report written 2026-11-27; executorch/exir/passes/__init__.py, ToOutVarPass",
    find=Nodes(only=_has_no_out_variant, branches=True),
    refusal=Rejection(
        "no plugin took {ops}, and ExecuTorch can't call an op without an out variant",
        "register one with a kernel, or give the op to a plugin",
    ),
)
QUIRKS: tuple[Row, ...] = (
    QUANTISED_KERNELS,
    OPS_WITH_EFFECTS,
    REFERENCE_REPRESENTATIONS,
    # After the kernels that bring such variants.
    OPS_WITHOUT_OUT_VARIANTS,
    UNKNOWN_ORDERS,
    # After the orders are settled, since it compares with them.
    UNWRITTEN_ORDERS,
    NON_BLOCKING_COPIES,
)
