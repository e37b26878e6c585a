"""Each repro is still not right on plain ExecuTorch; on etdev it is right, or refused by name."""

from __future__ import annotations

import pytest
from support import quirks
from support.quirks import ours, plain
from support.quirks.children import PARTITIONER, PLAIN, Judge
from support.quirks.verdict import Verdict, judge

from etdev import EtdevError, EtdevWarning
from etdev.portable.quirks import QUIRKS as PORTABLE
from etdev.quirks import QUIRKS

ROWS = {row.name: row for row in (*QUIRKS, *PORTABLE)}
NAMES = quirks.names()
# etdev is shown right on the host's rows each time, and plain ExecuTorch wrong on one row of each
# stage; the rest of both, and the kernels and backends, run with `make suites`. What plain
# ExecuTorch does to those of QUICK ends no process.
OTHERS = pytest.mark.suite
QUICK = (
    *("aliased-buffers", "initial-values", "lost-write-back", "mixed-dtypes", "shared-state"),
    *("python-inputs", "unwritten-orders"),
)
SLOW = ("forgotten-state",)
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
def test_plain_executorch_is_not_right(name, judges):
    row, repro = ROWS.get(name), quirks.load(name)
    if not (row or repro.fault).is_present:
        pytest.skip("another release has the fault")
    quick = name in QUICK
    verdict = Verdict(**judge(name, plain.lower)) if quick else judges[PLAIN].verdict(name)
    assert verdict.kind != "broken", verdict.detail
    if repro.undefined or (row is not None and row.undefined):
        return
    assert verdict.kind != "right", f"upstream is right now: say so in the row {name!r}"
    assert verdict.kind == repro.expects, f"say so: {verdict}"


@pytest.mark.parametrize("name", each(HELD, ROWS.keys() - set(SLOW)))
def test_etdev_is_right_or_refuses(name):
    verdict = Verdict(**judge(name, ours.lower, (EtdevError,), EtdevWarning))
    assert verdict.kind in GOOD, str(verdict)


@pytest.mark.parametrize("name", each([n for n in HELD if n not in NOT_SEEN], ()))
def test_the_partitioner_is_right_or_refuses(name, judges):
    verdict = judges[PARTITIONER].verdict(name)
    # What ExecuTorch's own loop fails on is not wrong, if not named either.
    good = verdict.kind in GOOD or (verdict.kind, verdict.stage) == ("error", "lower")
    assert good, str(verdict)


# Rows whose fault can't be seen in what ExecuTorch writes.
UNSEEN = {"narrowed-ranges"}


def test_each_row_has_a_repro():
    assert ROWS.keys() - set(NAMES) == UNSEEN


def test_the_partitioner_knows_quantised_kernels_in_a_new_process():
    child = Judge(PARTITIONER)
    try:
        assert child.verdict("quantised-kernels").kind == "right"
    finally:
        child.close()
