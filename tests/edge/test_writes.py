"""Buffers that get one value between them: each keeps its own, over several calls."""

import pytest
import torch
from torch import nn
from toys.runtime import execute

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
    lowered = Lowerer(plugins).lower(module, calls[0])
    for outputs, inputs in zip(execute(lowered, *calls), calls, strict=True):
        torch.testing.assert_close(outputs, [value.clone() for value in module(*inputs)])


def test_a_value_and_its_copy_are_both_returned():
    class Twice(nn.Module):
        def forward(self, x):
            y = x + 1
            return y, y.clone(), y.clone().clone(), y.clone().relu()

    lowered = Lowerer(["cpu"]).lower(Twice(), (torch.randn(4),))
    assert lowered.plan.partitions
    x = torch.randn(4)
    ((*outputs,),) = execute(lowered, [x])
    torch.testing.assert_close(outputs, list(Twice()(x)))


def test_an_input_that_is_called_input_keeps_its_name_where_a_value_is_cloned():
    def shifted(module, x):
        before = module.two + x
        module.two.copy_(module.one)
        return before

    module, calls = Keeps(shifted), [(torch.randn(4),) for _ in range(3)]
    module.one.add_(5)
    lowered = Lowerer([]).lower(module, calls[0])
    for outputs, inputs in zip(execute(lowered, *calls), calls, strict=True):
        torch.testing.assert_close(outputs, [module(*inputs).clone()])
