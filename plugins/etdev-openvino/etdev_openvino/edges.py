"""Edges: arguments, bools, NaN and infinities that OpenVINO treats otherwise than PyTorch.

Each rule was measured by tests/test_operators.py: every op of OpenVINO's list at the edges of its
arguments, in ExecuTorch's runtime, against eager PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

# A short code to group by, and the reason in words.
Reason = tuple[str, str]

# Ops that fail or lie with an infinite or NaN number as argument.
_FINITE = ("clamp", "hardtanh", "elu", "fmod", "leaky_relu")
# Ops that OpenVINO can't compile for bools, or compiles to fail.
_NOT_BOOLS = (
    *("add", "sub", "mul", "sign", "isinf", "isnan", "isfinite", "maximum", "minimum", "clamp"),
    *("amax", "amin", "max", "min", "full_like", "zeros_like", "ones_like", "fill", "fmod"),
    *("squeeze_copy", "permute_copy", "view_copy", "expand_copy"),
)
_LOSES_NAN = (
    *("relu", "clamp", "hardtanh", "hardsigmoid", "leaky_relu", "exp", "sign", "maximum"),
    *("minimum", "amax", "amin", "max", "min", "argmax", "argmin", "sort", "topk", "all", "any"),
    *("logical_not", "gt", "ge", "max_pool2d_with_indices", "max_pool3d_with_indices", "elu"),
    *("_softmax", "_log_softmax", "logsumexp", "var", "var_mean", "std", "linalg_vector_norm"),
    *("fmod", "grid_sampler_2d", "_scaled_dot_product_flash_attention_for_cpu"),
    *("_scaled_dot_product_flash_attention", "adaptive_max_pool1d", "adaptive_max_pool2d"),
    "adaptive_max_pool3d",
)


def arguments_problem(op: str, node: Node) -> Reason | None:
    """Why an op can't have its arguments; or None."""
    args: Any = node.args
    numbers = [arg for arg in args[1:] if isinstance(arg, float)]
    if op in _FINITE and not all(map(math.isfinite, numbers)):
        return "arguments", f"OpenVINO computes {op} otherwise with infinite or NaN numbers"
    if op == "elu" and len(args) > 2:
        return "arguments", "OpenVINO can't compile elu with a scale"
    if op == "squeeze_copy" and args[1:2] in (([],), ((),)):
        return "arguments", "OpenVINO squeezes every dimension where none is named"
    if op in ("var", "var_mean", "std") and node.kwargs.get("correction", 1) not in (0, 1, None):
        return "arguments", f"OpenVINO can't compile {op} with a correction other than 0 and 1"
    if op in ("index_put", "index", "_unsafe_index") and any(map(_is_mask, args[1])):
        return "arguments", f"OpenVINO can't compile {op} with a mask"
    return None


def bool_problem(
    op: str, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> Reason | None:
    """Why an op can't be had for bools; or None."""
    dtypes = {tensor.dtype for tensor in (*inputs, *outputs[:1])}
    if op in _NOT_BOOLS and dtypes == {torch.bool}:
        return "bool", f"OpenVINO can't compile {op} of bools"
    if op in ("isinf", "isnan", "isfinite", "clamp") and torch.bool in {t.dtype for t in inputs}:
        return "bool", f"OpenVINO can't compile {op} of bools"
    return None


def nan_problem(
    op: str, node: Node, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> Reason | None:
    """Why an op must not see NaN or infinities; or None."""
    if not any(tensor.dtype.is_floating_point for tensor in inputs):
        return None
    rounded = op == "div" and node.kwargs.get("rounding_mode") is not None
    to_bool = op in ("_to_copy", "_to_dim_order_copy") and outputs[0].dtype == torch.bool
    if op in _LOSES_NAN or rounded or to_bool:
        return "nan", f"OpenVINO's {op} treats NaN or infinite values otherwise than PyTorch"
    return None


def _is_mask(index: Any) -> bool:
    value = index.meta.get("val") if isinstance(index, Node) else None
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool
