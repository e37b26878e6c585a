"""Edges: NaN, infinities and huge numbers, which XNNPACK computes otherwise than PyTorch."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import torch
from torch.fx import Node

from etdev_cpu.layers import CONVOLUTION

# Seen in ExecuTorch's runtime: exp(NaN) is 0, the square root of inf and the sigmoid of 1e30 are
# NaN, the sine of 1e10 is -4891, and so on.
_FLOAT32 = frozenset(
    (
        *("exp", "sqrt", "rsqrt", "maximum", "minimum", "avg_pool2d", "upsample_bilinear2d"),
        *("max_pool2d", "max_pool2d_with_indices", "sigmoid", "sin", "cos", "log"),
    )
)
# Products of NaN are -inf.
_FLOAT16 = _FLOAT32 | {
    *("relu", "hardtanh", "clamp", "linear", "addmm", "mm", "bmm", CONVOLUTION),
}


# Weights of a channel that XNNPACK's kernels for layers of single channels have room for. Other
# numbers are filled up with zeros, times whatever other elements lie there; from the last on in
# several passes.
_ROOMS = (1, 3, 4, 9, 25)


def nan_problem(node: Node, op: str, dtypes: Collection[torch.dtype]) -> tuple[str, str] | None:
    """Why an op that reads these dtypes must not see NaN or infinities; or None."""
    if (op in _FLOAT32 and torch.float32 in dtypes) or (op in _FLOAT16 and torch.float16 in dtypes):
        return "nan", f"XNNPACK's {op} treats NaN, infinite or huge values otherwise than PyTorch"
    if op == CONVOLUTION and _fills_up(*node.args):
        return "nan", "XNNPACK's convolution of single channels spreads NaN and infinite values"
    return None


def _fills_up(source: Any, weight: Any, *others: Any) -> bool:
    """Whether a convolution of single channels has weights for which there is no kernel."""
    transposed, groups = others[4], others[6]
    outputs, inputs, *sizes = weight.meta["val"].shape
    single = not transposed and inputs == 1 and groups == outputs
    taps = math.prod(sizes)
    return single and taps < _ROOMS[-1] and taps not in _ROOMS
