"""torch's database of operators: each runs as in PyTorch, or is refused by name.

A slice runs with the other tests, all of it with `make matrix`.
"""

from __future__ import annotations

from functools import cache

import pytest
from models import opdb
from models.opdb import ENTRIES, UNDEFINED

# No kernel makes complex numbers; `lower` warns of it.
WITHOUT_KERNEL = {"fft.hfft", "fft.ihfft", "view_as_complex"}
RIGHT = (
    *("argsort", "copysign", "cummax", "erfinv", "fft.rfft", "histc", "index_reduce.amax"),
    *("masked_select", "max_pool2d_with_indices_backward", "median"),
    *("nn.functional.conv_transpose3d", "nonzero", "scatter_reduce.prod", "sort", "to", "unfold"),
)
REFUSED = ("lgamma", "special.airy_ai", "fft.fft", "fft.ifft")
# So many operators are right at least: the rest may be refused, or can't be exported.
MOST = 450
NAMES = [
    pytest.param(name, marks=[] if name in (*RIGHT, *REFUSED) else [pytest.mark.matrix])
    for name in ENTRIES
    if name not in UNDEFINED
]

verdict = cache(opdb.verdict)


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_is_right_or_refused(name):
    result = verdict(name)
    allowed = {"right", "refused", "unverified", "not exported"}
    if name in WITHOUT_KERNEL:
        allowed = {"no kernel"}
    elif name in RIGHT:
        allowed = {"right"}
    elif name in REFUSED:
        allowed = {"refused"}
    assert result.kind in allowed, result.text


@pytest.mark.matrix
def test_most_operators_are_right():
    kinds = [verdict(name).kind for name in ENTRIES if name not in UNDEFINED]
    assert kinds.count("right") >= MOST
