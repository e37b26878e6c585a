"""Every model of the matrix gives the same bytes in Python and in C++."""

from __future__ import annotations

import pytest
from etdev_cpp.runner import RUNNER
from support.toys.bits import same

from etdev.pte.read import read
from etdev.runtime.run import run_series
from etdev.runtime.runners import PYTHON


@pytest.mark.usefixtures("compiles")
def test_python_and_cpp_give_the_same_bytes(cell):
    case, path = cell
    methods = {method.name: method for method in read(path).methods}
    # Twice, so that sizes and states change in both directions.
    calls = [(methods[name], list(inputs)) for name, inputs in (*case.calls, *case.calls[::-1])]
    ours, theirs = (run_series(path, calls, runner=runner) for runner in (RUNNER, PYTHON))
    assert ours.failure is theirs.failure is None
    assert len(ours.values) == len(theirs.values) == len(calls)
    for a, b in zip(ours.values, theirs.values, strict=True):
        assert a.outputs
        assert all(map(same, a.outputs, b.outputs))
