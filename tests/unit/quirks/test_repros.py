"""Each repro is wrong on plain ExecuTorch as its row says; etdev is right, or refuses by name."""

from __future__ import annotations

import pytest
from support import quirks
from support.quirks import ours, plain
from support.quirks.children import PARTITIONER, PLAIN, Judge
from support.quirks.releases import disagreement
from support.quirks.rows import ROWS, rows_of
from support.quirks.verdict import Verdict, judge

from etdev import EtdevError, EtdevWarning
from etdev.portable.soundness import TABLES
from etdev.schema.fault import Fault

NAMES = quirks.names()
# etdev is shown right on the host's rows each time, and plain ExecuTorch wrong on one row of each
# stage; the rest of both, and the kernels and backends, run with `make suites`. What plain
# ExecuTorch does to those of QUICK ends no process.
OTHERS = pytest.mark.suite
QUICK = (
    *("aliased-buffers", "initial-values", "lost-write-back", "mixed-dtypes", "shared-state"),
    *("python-inputs", "unwritten-orders"),
)
# A fault of the export comes before a partitioner is asked, and one of several methods is not seen
# by one that is asked about each.
NOT_SEEN = (
    "forgotten-state",
    "merged-inputs",
    "replaced-buffers",
    "overlapping-state",
    "shared-state",
)
GOOD = ("right", "refused", "warned")
# etdev has no remedy, so there is nothing to hold: verification reports a size of 0 apart, which
# unit/verify/test_verifier.py shows, and the README of etdev-cpu says to write Dim(..., min=1).
OPEN = ("convolutions-of-no-rows", "products-of-no-rows")
HELD = [name for name in NAMES if name not in OPEN]


def each(names, quick):
    """Mark all names but the quick ones for `make suites`."""
    return [pytest.param(name, marks=[] if name in quick else [OTHERS]) for name in names]


@pytest.fixture(scope="session")
def judges():
    """A process for each way of lowering that may crash or hang."""
    made = {way: Judge(way) for way in (PLAIN, PARTITIONER)}
    yield made
    for child in made.values():
        child.close()


@pytest.mark.parametrize("name", each(NAMES, QUICK))
def test_plain_executorch_is_wrong_in_the_releases_that_the_row_names(name, judges):
    row, repro = ROWS.get(name), quirks.load(name)
    verdict = judge(name, plain.lower) if name in QUICK else judges[PLAIN].verdict(name)
    assert verdict.kind != "broken", verdict.detail
    if repro.undefined or (row is not None and row.undefined):
        return
    told = [disagreement(place, fault, verdict) for place, fault in rows_of(name)]
    assert not any(told), told
    assert verdict.kind in ("right", repro.expects), f"say so: {verdict}"


PLACE = "report written 2026-11-27; executorch/exir/tensor.py, and torch/export/_trace.py"


@pytest.mark.parametrize(
    ("executorch", "fixed", "kind", "told"),
    [
        ("1.6.0", "", "wrong", ""),
        (
            "1.6.0a0+gabc",
            "",
            "right",
            'upstream is right: write fixed="executorch 1.6" or fixed="torch 2.16.1" into the row',
        ),
        ("1.6.0a0+gabc", "executorch 1.6", "right", ""),
        ("1.6.0a0+gabc", "executorch 1.6", "wrong", ""),
        ("1.6.0", "executorch 1.6", "right", ""),
        (
            "1.6.0",
            "executorch 1.6",
            "wrong",
            'upstream is not right, though the row has fixed="executorch 1.6": wrong    1 for 2',
        ),
    ],
)
def test_the_line_to_write_is_told(pretend, executorch, fixed, kind, told):
    pretend(executorch=executorch, torch="2.16.1+cpu")
    fault = Fault(upstream=PLACE, fixed=fixed)
    assert disagreement("the row", fault, Verdict("any", kind, "1 for 2")) == told


@pytest.mark.slice(
    "overwritten-results",
    "unsupported-flows",
    "branch-constants",
    "shared-state",
    "strided-views",
    "lost-write-back",
    "aliased-buffers",
    "assertions-on-data",
    "written-inputs",
    "signed-remainders",
    "channels-last-kernels",
    "channels-last-buffers",
    "quantised-kernels",
    "powers-of-sizes",
    "dynamic-empties",
    "merged-inputs",
    "fixed-sizes",
    "mixed-dtypes",
    "rounded-scalars",
    "python-inputs",
    "overlapping-buffers",
    "refused-complex",
    "reserved-names",
    "widened-scalars",
)
@pytest.mark.parametrize("name", each(HELD, ROWS.keys()))
def test_etdev_is_right_or_refuses(name):
    verdict = judge(name, ours.lower, (EtdevError,), EtdevWarning)
    assert verdict.kind in GOOD, str(verdict)


@pytest.mark.parametrize("name", each([n for n in HELD if n not in NOT_SEEN], ()))
def test_the_partitioner_is_right_or_refuses(name, judges):
    verdict = judges[PARTITIONER].verdict(name)
    # What ExecuTorch's own loop fails on is not wrong, if not named either.
    good = verdict.kind in GOOD or (verdict.kind, verdict.stage) == ("error", "lower")
    assert good, str(verdict)


# Kernels with the fault of another op's, one that only transformers' models call, that of layer
# norm, which the wheel's runtime has an optimised one for, and the optimised one of linear layers,
# which ExecuTorch's own loop decomposes (tests/unit/edge/test_products.py).
ALIKE = {
    *("native_layer_norm", "linear", "quantize_per_tensor", "int_repr"),
    *("sub.Scalar", "_to_copy", "unfold", "narrow", "var.dim", "_upsample_bilinear2d_aa.vec"),
    *("_fft_r2c", "quantize_per_tensor.tensor", "dequantize_per_tensor.tensor"),
    *("quantize_per_token", "grouped_mm_fallback"),
}


def test_each_row_has_a_repro():
    assert ROWS.keys() <= set(NAMES)
    shown = {id(fault) for name in NAMES for _, fault in rows_of(name)}
    kernels = [(op, kernel) for table in TABLES.values() for op, kernel in table.items()]
    unseen = {str(op) for op, kernel in kernels if id(kernel) not in shown}
    assert {op.partition(".")[2].removesuffix(".default") for op in unseen} == ALIKE


@pytest.mark.suite
def test_the_partitioner_knows_quantised_kernels_in_a_new_process():
    child = Judge(PARTITIONER)
    try:
        assert child.verdict("quantised-kernels").kind == "right"
    finally:
        child.close()
