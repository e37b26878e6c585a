"""Dtypes that torch promotes and that ExecuTorch refuses or computes differently."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from etdev.graph.inlining import call
from etdev.graph.rebuild import with_changed
from etdev.schema.quirk import Nodes, Quirk, Rejection
from etdev.schema.stages import TO_EDGE
from etdev.upstream.operators import OpOverload, edge_dtypes
from etdev.upstream.trees import pytree

aten = torch.ops.aten
_JOINING = (aten.cat.default, aten.stack.default)
_VERIFIED = (*_JOINING, aten.floor_divide.default)
_CHOOSING = (aten.where.self, aten.pow.Tensor_Tensor, aten.remainder.Tensor, aten.fmod.Tensor)
_COMPARING = tuple(getattr(aten, name).Tensor for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_COPIES = (aten._to_copy.default, aten.clone.default, aten.empty.memory_format)
_DIM_ORDER_COPY = torch.ops.dim_order_ops._to_dim_order_copy.default  # takes their place
_HALVES = {torch.float16, torch.bfloat16}
_NORMS = (
    *(aten.native_layer_norm.default, aten.native_group_norm.default),
    *(aten._native_batch_norm_legit_no_training.default, aten._native_batch_norm_legit.no_stats),
)


def _promote(node: Node) -> None:
    """Convert the inputs of an op to the dtype that torch promotes them to."""
    converted, dtype = {}, _promoted(node)
    for source in _unpromoted(node):
        converted[source] = call(node, aten._to_copy.default, source, dtype=dtype)
    node.args = map_arg(node.args, lambda source: converted.get(source, source))


def _unpromoted(node: Node) -> list[Node]:
    """Return the inputs of a node in another dtype than the one that torch promotes them to."""
    wanted = _promoted(node)
    return [source for source in dict.fromkeys(_joined(node)) if _dtype(source) != wanted]


def _promoted(node: Node) -> torch.dtype:
    if node.target in _COMPARING:
        return torch.result_type(*(value.meta["val"] for value in _joined(node)))
    return _dtype(node)


def _dtype(node: Node) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def _joined(node: Node) -> Iterator[Node]:
    """Yield the tensors that are joined, chosen from or compared."""
    values: Any = node.args[0] if node.target in _JOINING else node.args
    for value in values[1:] if node.target is aten.where.self else values:
        if isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor):
            yield value


def _is_mixed(node: Node) -> bool:
    """Return True if ExecuTorch doesn't promote the inputs of a node as torch does."""
    dtypes = {_dtype(value) for value in _joined(node)}
    mixes = True
    if node.target in _COMPARING:
        mixes = not dtypes.isdisjoint(_HALVES) and _promoted(node) in _HALVES
    elif node.target in _CHOOSING:
        mixes = dtypes >= _HALVES
    return mixes and bool(_unpromoted(node))


def _has_wide_weights(node: Node) -> bool:
    """Return True if a norm of half precision has weights or statistics in another dtype."""
    dtypes = [_dtype(n) for n in node.all_input_nodes if isinstance(n.meta["val"], torch.Tensor)]
    return dtypes[0] in _HALVES and len({*dtypes}) > 1


def _normalise_wide(node: Node) -> None:
    """Compute a norm in float32, and convert its results."""
    wide = {
        n: call(node, aten._to_copy.default, n, dtype=torch.float32)
        for n in node.all_input_nodes
        if isinstance(n.meta["val"], torch.Tensor) and _dtype(n) in _HALVES
    }
    norm = call(node, node.target, *map_arg(node.args, lambda n: wide.get(n, n)))
    for result in list(node.users):
        with node.graph.inserting_before(result):
            item = call(result, operator.getitem, norm, result.args[1])
        result.target, result.args = aten._to_copy.default, (item,)
        result.kwargs = {"dtype": _dtype(result)}
    node.graph.erase_node(node)


def _has_refused_complex(node: Node) -> bool:
    """Return True if an op reads or returns complex numbers that the verifier doesn't take."""
    if not isinstance(node.target, OpOverload):
        return False
    leaves = pytree.tree_leaves([each.meta.get("val") for each in (node, *node.all_input_nodes)])
    dtypes = {value.dtype for value in leaves if isinstance(value, torch.Tensor)}
    taken = edge_dtypes(_DIM_ORDER_COPY if node.target in _COPIES else node.target)
    return any(dtype.is_complex and dtype not in taken for dtype in dtypes)


REFUSED_COMPLEX = Quirk(
    name="refused-complex",
    stage=TO_EDGE,
    summary="The verifier of the edge dialect takes complex numbers for a few ops only, and no "
    "complex32.",
    upstream="pytorch/executorch#1362 (PR #20828); executorch/exir/verification/verifier.py, "
    "_check_tensor_args_matching_op_allowed_dtype",
    find=Nodes(only=_has_refused_complex, branches=True),
    refusal=Rejection(
        "{ops} of method {method!r}: ExecuTorch takes no complex numbers there",
        "compute with torch.view_as_real, and in complex64 (cfloat) for complex32 (chalf)",
    ),
)
MIXED_DTYPES = Quirk(
    name="mixed-dtypes",
    stage=TO_EDGE,
    summary="Tensors of several dtypes, which torch promotes, are refused by the verifier of the "
    "edge dialect when they are joined or divided, and kernels compare integers with halves in a "
    "wider dtype and fail on a choice between both halves.",
    upstream="pytorch/executorch#7112; executorch/exir/verification/verifier.py, and "
    "executorch/kernels/portable/cpu/util/elementwise_util.h, apply_bitensor_elementwise_fn, and "
    "executorch/kernels/portable/cpu/pattern/comparison_op.h, comparison_tensor_out",
    find=Nodes((*_VERIFIED, *_CHOOSING, *_COMPARING), _is_mixed, branches=True),
    fix=partial(with_changed, change=_promote),
)
NORMS_WITH_WIDE_WEIGHTS = Quirk(
    name="norms-with-wide-weights",
    stage=TO_EDGE,
    summary="The kernels of norms fail on inputs in half precision with weights in float32, and "
    "the verifier of the edge dialect refuses such a layer norm.",
    upstream="pytorch/executorch#13586; executorch/kernels/portable/cpu/"
    "op_native_batch_norm.cpp, and executorch/exir/verification/verifier.py",
    find=Nodes(_NORMS, _has_wide_weights, branches=True),
    fix=partial(with_changed, change=_normalise_wide),
)
QUIRKS = (REFUSED_COMPLEX, MIXED_DTYPES, NORMS_WITH_WIDE_WEIGHTS)
