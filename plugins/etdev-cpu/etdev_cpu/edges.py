"""Edges: NaN, infinities and huge numbers, which XNNPACK computes otherwise than PyTorch."""

from __future__ import annotations

from collections.abc import Collection

import torch

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
    *("relu", "hardtanh", "clamp", "linear", "addmm", "mm", "bmm", "convolution"),
}


def nan_problem(op: str, dtypes: Collection[torch.dtype]) -> tuple[str, str] | None:
    """Why an op that reads these dtypes must not see NaN or infinities; or None."""
    if (op in _FLOAT32 and torch.float32 in dtypes) or (op in _FLOAT16 and torch.float16 in dtypes):
        return "nan", f"XNNPACK's {op} treats NaN, infinite or huge values otherwise than PyTorch"
    return None
