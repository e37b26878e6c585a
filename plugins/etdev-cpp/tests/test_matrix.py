"""Every model of the matrix gives the same bytes in Python and in C++, and nearly so on aarch64."""

from __future__ import annotations

import pytest
from etdev_cpp.runner import RUNNER
from support.emulator import emulated
from support.toys.bits import same

from etdev.pte.read import read
from etdev.runtime.run import run_series
from etdev.runtime.runners import PYTHON
from etdev.schema.target import Target
from etdev.verify.output_error import compare


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


# Without newer instructions, with those for dot products, and with vectors of any length.
MODELS = ("cortex-a53", "cortex-a76", "a64fx")


@emulated
def test_another_processor_gives_nearly_the_same_values(cell):
    case, path = cell
    methods = {method.name: method for method in read(path).methods}
    calls = [(methods[name], list(inputs)) for name, inputs in (*case.calls, *case.calls[::-1])]
    expected = run_series(path, calls, runner=PYTHON)
    for model in MODELS:
        (runner,) = RUNNER.on_target(Target("aarch64-linux-gnu", f"qemu:{model}"))
        if any(any(runner.missing(method)) for method in methods.values()):
            pytest.skip("ExecuTorch's wheel for aarch64 lacks a backend of it")
        found = run_series(path, calls, runner=runner)
        assert found.failure is None
        assert len(found.values) == len(calls)
        for ours, theirs in zip(found.values, expected.values, strict=True):
            for error in compare(ours.outputs, theirs.outputs):
                assert error.max_error <= case.tolerance * max(error.max_value, 1), model
