"""Every model of the matrix gives the same bytes in Python and in C++."""

from __future__ import annotations

import pytest
from etdev_cpp.runner import RUNNER
from models.matrix import LARGE, SMALL
from toys.bits import same

from etdev import Lowerer
from etdev.pte.read import read
from etdev.runtime.run import run_series
from etdev.runtime.runners import PYTHON

pytestmark = pytest.mark.usefixtures("compiles")
ORDERS = {"portable": [], "xnnpack": ["cpu"], "openvino": ["openvino", "cpu"]}
# ExecuTorch can't emit it.
REFUSED = ("while_loop",)
QUICK = [("kv_cache", "xnnpack"), ("two_methods", "xnnpack"), ("dynamic_batch", "portable")]
CELLS = [
    pytest.param(model, order, marks=[] if (model, order) in QUICK else [pytest.mark.suite])
    for model in (*SMALL, *LARGE)
    if model not in REFUSED
    for order in ORDERS
]


@pytest.mark.parametrize(("model", "order"), CELLS)
def test_python_and_cpp_give_the_same_bytes(model, order, tmp_path):
    if order == "openvino":
        pytest.importorskip("openvino", reason="openvino is not installed")
    case = {**SMALL, **LARGE}[model]()
    path = Lowerer(ORDERS[order]).lower(dict(case.programs)).save(tmp_path / "cell.pte")
    methods = {method.name: method for method in read(path).methods}
    # Twice, so that sizes and states change in both directions.
    calls = [(methods[name], list(inputs)) for name, inputs in (*case.calls, *case.calls[::-1])]
    ours, theirs = (run_series(path, calls, runner=runner) for runner in (RUNNER, PYTHON))
    assert ours.failure is theirs.failure is None
    assert len(ours.values) == len(theirs.values) == len(calls)
    for a, b in zip(ours.values, theirs.values, strict=True):
        assert a.outputs
        assert all(map(same, a.outputs, b.outputs))
