"""Turns: lowerings of several threads, in forked processes and under modes of torch."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.toys.runtime import assert_agrees
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from etdev import Lowerer
from etdev.testing.programs import Layer, X


def written():
    return Lowerer(["cpu"], cache=False).lower(Layer(), (X,)).to_executorch().buffer


def test_threads_lower_one_after_another():
    with ThreadPoolExecutor(3) as threads:
        made = [threads.submit(written) for _ in range(3)]
        assert {thread.result() for thread in made} == {written()}


class Counter(TorchDispatchMode):
    """Counts ops, as torch's own counter of operations does."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [FakeTensorMode(allow_non_fake_inputs=True), Counter()])
def test_modes_of_the_caller_are_off_meanwhile(mode):
    module = Layer()
    with mode:
        lowered = Lowerer(["cpu"], cache=False).lower(module, (X,))
        lowered.to_executorch()
    assert_agrees(lowered, module, (X,), (X * 2,))
    assert not getattr(mode, "calls", 0)


def test_warnings_that_torch_and_executorch_give_rise_to_themselves_are_not_raised(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered = Lowerer(["cpu"], cache=False).lower(nn.LSTM(X.shape[-1], 3), (X,))
        lowered.save(tmp_path / "lstm.pte")
