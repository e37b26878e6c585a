"""torch's database of operators: each runs as in PyTorch, or is refused by name.

A slice runs with the other tests, all of it with `make matrix`.
"""

from __future__ import annotations

from functools import cache

import pytest

# No kernel makes complex numbers; `lower` warns of it.
WITHOUT_KERNEL = {"fft.hfft", "fft.ihfft", "view_as_complex"}
RIGHT = (
    *("bucketize", "copysign", "cummax", "fft.rfft", "index_reduce.amax", "masked_select"),
    *("median", "nonzero", "scatter_reduce.prod", "to", "unfold"),
)
# Right, too, but each takes longer.
SLOW = (
    *("argsort", "erfinv", "histc", "linalg.tensorinv", "max_pool2d_with_indices_backward"),
    *("nn.functional.conv_transpose3d", "sort"),
)
REFUSED = ("lgamma", "special.airy_ai", "fft.fft", "fft.ifft")
# So many operators are right at least: the rest may be refused, or can't be exported.
MOST = 450
ALLOWED = {"right", "refused", "unverified", "not exported"}
# The others are shared out between so many tests.
PARTS = 20


@cache
def verdict(name):
    # It imports the database, which takes a second.
    from support.models import opdb

    return opdb.verdict(name)


@cache
def others():
    from support.models.opdb import ENTRIES, UNDEFINED

    return [name for name in ENTRIES if name not in {*UNDEFINED, *RIGHT, *SLOW, *REFUSED}]


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "right") for name in RIGHT]
    + [pytest.param(name, "right", marks=pytest.mark.matrix) for name in SLOW]
    + [(name, "refused") for name in REFUSED],
)
def test_an_operator_is_right_or_refused(name, kind):
    assert verdict(name).kind == kind, verdict(name).text


@pytest.mark.matrix
@pytest.mark.parametrize("part", range(PARTS))
def test_each_other_operator_is_right_or_refused(part):
    verdicts = {name: verdict(name) for name in others()[part::PARTS]}
    assert verdicts
    assert {
        name: found
        for name, found in verdicts.items()
        if found.kind not in ({"no kernel"} if name in WITHOUT_KERNEL else ALLOWED)
    } == {}


@pytest.mark.matrix
def test_most_operators_are_right():
    kinds = [verdict(name).kind for name in (*RIGHT, *SLOW, *others())]
    assert kinds.count("right") >= MOST
