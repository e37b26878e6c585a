"""Decompositions into ops that portable kernels compute, which none of torch's tables has.

Each is called as its op is. It holds at NaN, infinities and the edges of each dtype as PyTorch's
kernel does, and raises NotImplementedError for arguments that it can't express.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from etdev.portable.decompositions import (
    bags,
    corrections,
    elementwise,
    linalg,
    order,
    places,
    pooling,
    quantisers,
    randoms,
    reductions,
    sampling,
    weighting,
)

_FILES: Any = (
    *(corrections, bags, elementwise, linalg, order, places, pooling, quantisers, randoms),
    *(reductions, sampling, weighting),
)
DECOMPOSITIONS: Mapping[Any, Callable[..., Any]] = {
    op: formula for file in _FILES for op, formula in file.FORMULAS.items()
}
