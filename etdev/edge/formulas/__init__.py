"""Formulas: decompositions that none of torch's tables has, into what portable kernels compute.

Each is called as its op is. It holds at NaN, infinities and the edges of each dtype as PyTorch's
kernel does, and raises NotImplementedError for arguments that it can't express.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from etdev.edge.formulas import (
    bags,
    elementwise,
    linalg,
    order,
    places,
    pooling,
    quantisers,
    randoms,
    reductions,
    sampling,
    search,
    special,
    volumes,
    weighting,
)

FORMULAS: Mapping[Any, Callable[..., Any]] = {
    **bags.FORMULAS,
    **elementwise.FORMULAS,
    **linalg.FORMULAS,
    **order.FORMULAS,
    **places.FORMULAS,
    **pooling.FORMULAS,
    **quantisers.FORMULAS,
    **randoms.FORMULAS,
    **reductions.FORMULAS,
    **sampling.FORMULAS,
    **search.FORMULAS,
    **special.FORMULAS,
    **volumes.FORMULAS,
    **weighting.FORMULAS,
}
