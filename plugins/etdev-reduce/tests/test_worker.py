"""The process that tries cases: what it says of each kind of failure, and that it survives them."""

import time

import pytest
from etdev_reduce import worker
from etdev_reduce.failure import CRASH, ERROR, HANG, INVALID, RIGHT, SLOW, WRONG, Failure
from etdev_reduce.forks import forked
from etdev_reduce.worker import Trial
from support.breaking import breaking

from etdev.runtime.child import COMMAND, Child

HEAD = """\
import copy
import torch
from executorch.runtime import Runtime

"""
TAIL = """\
eager = copy.deepcopy(model)
program = torch.export.export(model, calls[0])
"""
SOURCE = """\
class Model(torch.nn.Module):
    def forward(self, x):
        return (torch.ops.aten.add.Tensor(x, 1),)

model, calls = Model(), [(torch.ones(2, 2),)]
"""


@pytest.fixture(scope="module")
def child():
    child = Child("trials", command=(*COMMAND, worker.__name__))
    yield child
    child.close()


def tried(child, kind="", source=SOURCE, limit_s=120.0, **settings):
    trial = Trial(HEAD + source + TAIL, {}, breaking(kind), **settings)
    (failure,) = child.run(worker.judge, trial, limit_s).values
    return failure


def test_each_kind_of_failure_is_told_apart_in_one_process(child):
    assert tried(child).kind == RIGHT
    process = child._process.pid
    crash = tried(child, "crash")
    assert (crash.kind, crash.stage, crash.identity) == (CRASH, "lower", "SIGSEGV")
    error = tried(child, "error")
    assert (error.kind, error.stage) == (ERROR, "lower")
    assert error.identity == "ValueError in breaking.py:lower: node aten_add is no good"
    assert error.is_like(Failure(ERROR, "lower", error.identity))
    # What isn't installed is no fault of the program.
    assert tried(child, "missing").kind == INVALID
    hang = tried(child, "hang", limit_s=5.0)
    assert (hang.kind, hang.stage, hang.detail) == (HANG, "lower", "no answer in 5 s")
    assert tried(child, source="model = 1 / 0").kind == INVALID
    # Slower than it is itself by any factor.
    assert tried(child, slow=1e-9).kind == SLOW
    assert child._process.pid == process


DOUBLES = """\
class Model(torch.nn.Module):
    def forward(self, x):
        return x.float() + 1, torch.ops.aten.sum.dim_IntList(x, [0])

model, calls = Model(), [(torch.rand(4096).double(),)]
"""


def test_a_float64_is_held_to_its_own_tolerance_beside_a_float32(child):
    """Portable kernels sum float64 in float32."""
    failure = tried(child, source=DOUBLES)
    assert (failure.kind, failure.identity) == (WRONG, "values")
    assert failure.detail.startswith("in call 0, output 1 is off by ")


INTEGERS = """\
class Model(torch.nn.Module):
    def forward(self, x):
        return (torch.ops.aten.sum.dim_IntList(x, [0], dtype=torch.int32),)

model, calls = Model(), [(torch.full((1, 1), 2**30 + 1, dtype=torch.int32),)]
"""


def test_integers_that_are_off_by_one_have_to_be_equal_in_the_script(child):
    failure = tried(child, source=INTEGERS)
    assert (failure.kind, failure.tolerance) == (WRONG, 0.0)


def test_a_limit_is_one_of_processor_time_or_twice_that_of_waiting():
    def compute(tell):
        while True:
            pass

    def wait(tell):
        time.sleep(0.5)
        tell(0)

    assert forked(compute, 0.2).hangs
    assert not forked(wait, 0.3).hangs
    assert forked(wait, 0.1).hangs
