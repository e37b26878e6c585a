"""Buffers that get one value between them: each keeps its own, over several calls."""

import pytest
import torch
from executorch.exir.backend.partitioner import Partitioner
from support.toys.runtime import assert_agrees, by_partitioner
from torch import nn

from etdev import Lowerer


class Keeps(nn.Module):
    def __init__(self, write):
        super().__init__()
        self.write = write
        self.register_buffer("one", torch.zeros(4))
        self.register_buffer("two", torch.zeros(4))

    def forward(self, input):
        return self.write(self, input)


def both(module, x):
    module.one.add_(x)
    module.two.copy_(module.one)
    return module.one * module.two, module.one


def earlier(module, x):
    module.one.add_(x)
    before = module.two + 0
    module.two.copy_(module.one)
    return before, module.two


def again(module, x):
    module.one.add_(x)
    module.two.copy_(module.one)
    module.one.mul_(2)
    return module.one - module.two, module.two


@pytest.mark.parametrize("write", [both, earlier, again])
@pytest.mark.parametrize("plugins", [[], ["cpu"]])
def test_one_value_for_two_buffers_runs_as_in_pytorch(write, plugins):
    module, calls = Keeps(write), [(torch.randn(4),) for _ in range(4)]
    assert_agrees(Lowerer(plugins).lower(module, calls[0]), module, *calls)


CONVERTED = {
    "a row": (torch.zeros(3, 4), lambda x: x[0]),
    "integers": (torch.zeros(3, 4, dtype=torch.int32), lambda x: x),
    "rounded": (torch.zeros(3, 4), lambda x: x.half()),
    "a row of integers": (torch.zeros(3, 4), lambda x: (x[1] * 3).int()),
    "a number": (torch.ones(3, 4), lambda x: x.sum()),
}


class Converts(nn.Module):
    """Copies to a buffer what has another dtype or shape, and reads it."""

    def __init__(self, buffer, source):
        super().__init__()
        self.source = source
        self.register_buffer("buffer", buffer.clone())

    def forward(self, x):
        before = self.buffer + 1
        self.buffer.copy_(self.source(x))
        return before, self.buffer + 1, self.buffer.sum(0)


@pytest.mark.parametrize("kind", CONVERTED)
def test_what_is_copied_to_a_buffer_takes_its_dtype_and_shape(kind):
    module, calls = Converts(*CONVERTED[kind]), [(torch.randn(3, 4) * 3,) for _ in range(3)]
    assert_agrees(Lowerer(["cpu"]).lower(module, calls[0]), module, *calls)


@pytest.mark.skipif(
    not hasattr(Partitioner, "transform_for_pre_decomposition"),
    reason="ExecuTorch 1.4 would not convert it: refused",
)
def test_what_is_copied_is_converted_in_executorchs_own_loop_too():
    module, calls = Converts(*CONVERTED["a row"]), [(torch.randn(3, 4),) for _ in range(3)]
    assert_agrees(by_partitioner(module, calls[0], ["cpu"]), module, *calls)


def test_a_value_and_its_copy_are_both_returned():
    class Twice(nn.Module):
        def forward(self, x):
            y = x + 1
            return y, y.clone(), y.clone().clone(), y.clone().relu()

    lowered = Lowerer(["cpu"]).lower(Twice(), (torch.randn(4),))
    assert lowered.plan.partitions
    assert_agrees(lowered, Twice(), (torch.randn(4),))


def test_an_input_that_is_called_input_keeps_its_name_where_a_value_is_cloned():
    def shifted(module, x):
        before = module.two + x
        module.two.copy_(module.one)
        return before

    module, calls = Keeps(shifted), [(torch.randn(4),) for _ in range(3)]
    module.one.add_(5)
    assert_agrees(Lowerer([]).lower(module, calls[0]), module, *calls)
