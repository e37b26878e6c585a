"""torch's database of operators: each runs as in PyTorch, or is refused by name.

A slice runs with the other tests, all of it with `make matrix`.
"""

from __future__ import annotations

import pytest
from models.opdb import ENTRIES, UNDEFINED, verdict

# No kernel makes complex numbers; `lower` warns of it.
WITHOUT_KERNEL = {"fft.hfft", "fft.ihfft", "view_as_complex"}
RIGHT = (
    *("argsort", "copysign", "cummax", "erfinv", "fft.rfft", "histc", "index_reduce.amax"),
    *("masked_select", "max_pool2d_with_indices_backward", "median"),
    *("nn.functional.conv_transpose3d", "nonzero", "scatter_reduce.prod", "sort", "to", "unfold"),
)
REFUSED = ("lgamma", "special.airy_ai", "fft.fft", "fft.ifft")
NAMES = [
    pytest.param(name, marks=[] if name in (*RIGHT, *REFUSED) else [pytest.mark.matrix])
    for name in ENTRIES
    if name not in UNDEFINED
]


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
