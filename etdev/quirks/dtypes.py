"""Dtypes that torch promotes and that ExecuTorch refuses or computes otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from etdev.graph.nodes import is_complex
from etdev.graph.rebuild import with_changed
from etdev.schema.quirk import Nodes, Quirk, Refusal, Stage

aten = torch.ops.aten
_JOINING = (aten.cat.default, aten.stack.default)
_CHOOSING = (aten.where.self, aten.pow.Tensor_Tensor, aten.remainder.Tensor, aten.fmod.Tensor)
_COMPARING = tuple(getattr(aten, name).Tensor for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_HALVES = {torch.float16, torch.bfloat16}


def _promote(node: Node, _: Node) -> None:
    """Convert the inputs of an op to the dtype that torch promotes them to."""
    converted, dtype = {}, _promoted(node)
    for source in _unpromoted(node):
        copy = node.graph.call_function(aten._to_copy.default, (source,), {"dtype": dtype})
        copy.meta = {**node.meta, "val": source.meta["val"].to(dtype)}
        converted[source] = copy
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
    return bool(_unpromoted(node))


def _mixes_halves(node: Node) -> bool:
    """Return True if a node chooses between both halves, or compares one with an integer."""
    dtypes = {_dtype(value) for value in _joined(node)}
    if node.target in _COMPARING:
        mixes = not dtypes.isdisjoint(_HALVES) and _promoted(node) in _HALVES
    else:
        mixes = dtypes >= _HALVES
    return mixes and _is_mixed(node)


def _computes_complex(node: Node) -> bool:
    return node.op == "call_function" and is_complex(node)


_convert_inputs = partial(with_changed, change=_promote)
MIXED_DTYPES = Quirk(
    name="mixed-dtypes",
    stage=Stage.DECOMPOSED,
    summary="Tensors of several dtypes, which torch promotes when it joins or divides them, are "
    "refused by the verifier of the edge dialect.",
    upstream="not reported; executorch/exir/verification/verifier.py, "
    "_check_tensor_args_matching_op_allowed_dtype",
    affects="executorch<1.6",
    find=Nodes((*_JOINING, aten.floor_divide.default), _is_mixed, branches=True),
    fix=_convert_inputs,
)
MIXED_HALVES = Quirk(
    name="mixed-halves",
    stage=Stage.DECOMPOSED,
    summary="Kernels fail on a choice between float16 and bfloat16 tensors, which torch promotes "
    "to float32, and compare integers with halves in a wider dtype than PyTorch does.",
    upstream="not reported; executorch/kernels/portable/cpu/util/elementwise_util.h, "
    "apply_bitensor_elementwise_fn, and pattern/comparison_op.h, comparison_tensor_out",
    affects="executorch<1.6",
    find=Nodes((*_CHOOSING, *_COMPARING), _mixes_halves, branches=True),
    fix=_convert_inputs,
)
COMPLEX_NUMBERS = Quirk(
    name="complex-numbers",
    stage=Stage.DECOMPOSED,
    summary="Complex numbers can't be converted to the edge dialect.",
    upstream="not reported; executorch/exir/scalar_type.py and "
    "executorch/exir/verification/verifier.py, EXIREdgeDialectVerifier",
    affects="executorch<1.6",
    find=Nodes(only=_computes_complex, branches=True),
    # They fail in many ways.
    symptom=lambda error: True,
    refusal=Refusal(
        "ExecuTorch can't convert complex numbers, which {ops} read or return",
        "compute with real and imaginary parts, as torch.view_as_real gives them",
    ),
)
QUIRKS = (MIXED_DTYPES, MIXED_HALVES, COMPLEX_NUMBERS)
