"""Arguments, bools, NaN and infinities that OpenVINO treats differently from PyTorch.

Each rule was measured by tests/test_operators.py: every op of OpenVINO's list at the edges of its
arguments, in ExecuTorch's runtime, against eager PyTorch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.fx import Node

from etdev.graph import op_name
from etdev.quirks import FaultyOps

# A short code to group by, and the reason in words.
Reason = tuple[str, str]

SEEN = "seen with openvino 2025.4; tests/test_operators.py"
# Ops that fail or lie with an infinite or NaN number as argument.
_FINITE = FaultyOps(upstream=SEEN, ops=("clamp", "hardtanh", "elu", "fmod", "leaky_relu"))
# Ops that OpenVINO can't compile for bools.
_NOT_BOOLS = FaultyOps(
    upstream=SEEN,
    ops=(
        *("add", "sub", "mul", "sign", "isinf", "isnan", "isfinite", "maximum", "minimum"),
        *("clamp", "amax", "amin", "max", "min", "fmod", "prod", "sum"),
    ),
)
# Reductions; OpenVINO fuses what follows them into them.
_REDUCTIONS = FaultyOps(
    upstream=SEEN,
    ops=("sum", "mean", "amax", "amin", "prod", "max", "min", "all", "any"),
)
# Ops whose second output has positions, not always the first ones where values tie.
_GIVE_ANY_POSITION = FaultyOps(upstream=SEEN, ops=("max", "min", "sort", "topk"))
_LOSES_NAN = FaultyOps(
    upstream=SEEN,
    ops=(
        *("relu", "clamp", "hardtanh", "hardsigmoid", "leaky_relu", "exp", "sign", "maximum"),
        *("minimum", "amax", "amin", "max", "min", "argmax", "argmin", "sort", "topk", "all"),
        *("any", "logical_not", "gt", "ge", "max_pool2d_with_indices", "elu", "_softmax"),
        *("max_pool3d_with_indices", "_log_softmax", "logsumexp", "var", "var_mean", "std"),
        *("linalg_vector_norm", "fmod", "grid_sampler_2d", "scaled_dot_product_attention"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention"),
        *("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    ),
)


def names(node: Node) -> tuple[str, str]:
    """Return an op with and without its overload: `aten.add.Tensor` and `aten.add`."""
    name = op_name(node)
    return name, name.rpartition(".")[0]


def short(node: Node) -> str:
    """Return an op without namespace and overload: `add`."""
    return names(node)[1].rpartition(".")[2]


def arguments_problem(op: str, node: Node) -> Reason | None:
    """Return why an op can't have its arguments; or None."""
    args: Any = node.args
    numbers = [arg for arg in args[1:] if isinstance(arg, float)]
    if op in _FINITE and not all(map(math.isfinite, numbers)):
        return "arguments", f"OpenVINO computes {op} otherwise with infinite or NaN numbers"
    if op == "fmod":
        return "precision", "OpenVINO rounds the quotient of fmod, which is off where that is large"
    if op == "div" and node.kwargs.get("rounding_mode") == "floor":
        return "precision", "OpenVINO floors a rounded quotient, which is off by one at multiples"
    if op in _GIVE_ANY_POSITION and _is_position_read(node):
        return "ties", f"OpenVINO's {op} gives other positions than PyTorch where values tie"
    if op == "div" and node.kwargs.get("rounding_mode") == "trunc":
        return "precision", "OpenVINO truncates to an int32, which has no quotients above 2**31"
    if op == "erf" and _halves(node):
        return "arguments", "OpenVINO's delegate fails on erf of float16"
    if op == "elu" and len(args) > 2:
        return "arguments", "OpenVINO can't compile elu with a scale"
    if op == "addmm" and 0 in (node.kwargs.get("beta"), node.kwargs.get("alpha")):
        return "arguments", "OpenVINO multiplies by zero what PyTorch leaves out, which may be NaN"
    if op == "squeeze_copy" and args[1:2] in (([],), ((),)):
        return "arguments", "OpenVINO squeezes every dimension where none is named"
    if op in ("var", "var_mean", "std") and node.kwargs.get("correction", 1) not in (0, 1, None):
        return "arguments", f"OpenVINO can't compile {op} with a correction other than 0 and 1"
    if op in ("var", "var_mean", "std") and _counted(node) <= 1 == node.kwargs.get("correction", 1):
        return "arguments", f"OpenVINO's {op} of one element is 0"
    if op in ("index_put", "index", "_unsafe_index") and any(map(_is_mask, args[1])):
        return "arguments", f"OpenVINO can't compile {op} with a mask"
    # `_unsafe_index` is torch's own, such as for an upsampling, and never has negative ones.
    if op == "index" and sum(index is not None for index in args[1]) > 1:
        return "arguments", "OpenVINO misreads negative ones of several indices"
    if op == "gather" and _picks_part(node):
        return "arguments", "OpenVINO can't compile a gather that leaves out rows"
    if op == "arange" and _is_float_by_chance(node):
        return "arguments", "OpenVINO makes integers of an arange without dtype from an integer"
    if op == "div" and _divides_a_reduction(node):
        return "arguments", "OpenVINO loses values of a sum over a middle dimension that is divided"
    return None


def bool_problem(
    op: str, node: Node, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> Reason | None:
    """Return why an op can't be had for bools; or None."""
    dtypes = {tensor.dtype for tensor in (*inputs, *outputs[:1])}
    if op in _NOT_BOOLS and dtypes == {torch.bool}:
        return "bool", f"OpenVINO can't compile {op} of bools"
    if op == "where" and dtypes == {torch.bool} and _repeats_its_condition(node):
        return "bool", "OpenVINO can't compile where of bools that are its condition"
    if op in ("isinf", "isnan", "isfinite", "clamp") and torch.bool in {t.dtype for t in inputs}:
        return "bool", f"OpenVINO can't compile {op} of bools"
    return None


def nan_problem(
    op: str, node: Node, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> Reason | None:
    """Return why an op must not see NaN or infinities; or None."""
    converts = op in ("_to_copy", "_to_dim_order_copy")
    to_half = converts and outputs[0].dtype == torch.float16
    # Floats beyond float16 become its largest number, and integers beyond it stay as they are.
    wide = (torch.int32, torch.int64) if to_half else ()
    if not any(own.dtype.is_floating_point or own.dtype in wide for own in inputs):
        return None
    to_bool = converts and outputs[0].dtype == torch.bool
    # Channels are convolved with zeros of other groups.
    grouped = op == "convolution" and cast("int", node.args[8]) > 1
    if op in _LOSES_NAN or to_bool or to_half or grouped:
        return "nan", "differs from PyTorch at NaN or infinite values"
    return None


def _halves(node: Node) -> bool:
    return bool(node.all_input_nodes[0].meta["val"].dtype == torch.float16)


def _is_position_read(node: Node) -> bool:
    return any(user.target is operator.getitem and user.args[1] == 1 for user in node.users)


def _counted(node: Node) -> int:
    """Return the number of elements that each result is computed from."""
    source, result = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    first = result[0] if isinstance(result, tuple) else result
    return int(source.numel() // max(first.numel(), 1))


def _picks_part(node: Node) -> bool:
    """Return True if a gather's index is smaller than its input where it doesn't pick."""
    table, dim, index = cast("tuple[Node, int, Node]", node.args[:3])
    sizes, picked = list(table.meta["val"].shape), list(index.meta["val"].shape)
    del sizes[dim], picked[dim]
    return sizes != picked


def _is_float_by_chance(node: Node) -> bool:
    """Return True if an arange of floats has its type only from one of several numbers."""
    value: Any = node.meta["val"]
    typed = node.kwargs.get("dtype") is not None
    whole = any(isinstance(number, int) for number in node.args)
    return value.is_floating_point() and whole and not typed


def _divides_a_reduction(node: Node) -> bool:
    """Return True if a scalar divides a sum over dimension 1 of 3, or a value computed from it."""
    dividend, divisor = node.args[:2]
    if isinstance(divisor, Node) and divisor.meta["val"].dim():
        return False
    while isinstance(dividend, Node) and dividend.op == "call_function":
        source = next(iter(dividend.all_input_nodes), None)
        value = source.meta.get("val") if source is not None else None
        if not isinstance(value, torch.Tensor):
            return False
        if op_name(dividend).split(".")[1] in _REDUCTIONS and _from_the_middle(dividend, value):
            return True
        dividend = source
    return False


def _from_the_middle(node: Node, source: torch.Tensor) -> bool:
    """Return True if a reduction is over dimension 1 of 3, and not over dimension 0."""
    dims: Any = node.args[1] if len(node.args) > 1 else None
    if source.dim() != 3 or dims is None or source.shape[0] == 1:
        return False
    listed = {dim % 3 for dim in (dims if isinstance(dims, (list, tuple)) else [dims])}
    return 1 in listed and 0 not in listed


def _repeats_its_condition(node: Node) -> bool:
    condition, *values = node.args
    return any(_is_same(condition, value) for value in values)


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two values are one node, or computed alike, which OpenVINO finds out."""
    if one is other:
        return True
    if not isinstance(one, Node) or not isinstance(other, Node) or one.op != "call_function":
        return False
    return (one.target, one.args, one.kwargs) == (other.target, other.args, other.kwargs)


def _is_mask(index: Any) -> bool:
    value = index.meta.get("val") if isinstance(index, Node) else None
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool
