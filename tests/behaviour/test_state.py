"""State over several calls: what a method writes is there at the next call, as in eager PyTorch."""

import copy
import math

import pytest
import torch
from executorch.exir import to_edge
from support.toys.runtime import assert_agrees, by_partitioner, execute
from torch import nn

from etdev import Lowerer
from etdev.errors import LoweringError

pytestmark = pytest.mark.usefixtures("quick_conversion")

EACH = pytest.mark.parametrize("plugins", [[], ["cpu"]], ids=["portable", "cpu"])


class Stateful(nn.Module):
    """A function of its buffers and an input, which it may write."""

    def __init__(self, step, **buffers):
        super().__init__()
        self.step = step
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.step(self, x)


def calls(*shape, count=4):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(*shape, generator=generator),) for _ in range(count)]


def assert_keeps_state(module, inputs, plugins=()):
    before = copy.deepcopy(module.state_dict())
    lowered = Lowerer(list(plugins)).lower(module, inputs[0])
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0, equal_nan=True)
    assert_agrees(lowered, copy.deepcopy(module), *inputs)


def remember(module, x):
    out = module.older * 10 + module.newer
    module.older.copy_(module.newer)
    module.newer.add_(x)
    return out


def remember_as_matrix(module, x):
    out = module.older.sum() + module.newer
    module.older.copy_(module.newer.view(2, 2))
    module.newer.add_(x)
    return out


def exchange(module, x):
    out = module.older * 2 + module.newer + x
    older = module.older.clone()
    module.older.copy_(module.newer)
    module.newer.copy_(older)
    return out


def shift(module, x):
    out = module.first + 2 * module.second + 3 * module.third
    module.third.copy_(module.second)
    module.second.copy_(module.first)
    module.first.copy_(x)
    return out


def fill_both(module, x):
    out = module.older + module.newer + x
    module.older.copy_(out)
    module.newer.copy_(out)
    return out * 2


def return_what_was(module, x):
    was = module.older.to(torch.float32, copy=True)
    module.older.add_(x)
    return was


class Several(nn.Module):
    """Modules with state, all in one program."""

    def __init__(self, modules):
        super().__init__()
        self.several = nn.ModuleList(modules)

    def forward(self, x):
        return [module(x) for module in self.several]


WRITTEN = [
    (remember, {"older": torch.zeros(4), "newer": torch.zeros(4)}),
    (remember, {"newer": torch.zeros(4), "older": torch.zeros(4)}),
    (remember_as_matrix, {"newer": torch.zeros(4), "older": torch.zeros(2, 2)}),
    (exchange, {"older": torch.zeros(4), "newer": torch.ones(4)}),
    (shift, {name: torch.zeros(4) for name in ("first", "second", "third")}),
    (fill_both, {"older": torch.zeros(4), "newer": torch.zeros(4)}),
    (return_what_was, {"older": torch.zeros(4)}),
]


# Each alone is a repro of support/quirks/state.py or a model of support/zoo/state.py.
@pytest.mark.slice("cpu")
@EACH
def test_buffers_whose_new_values_are_inputs_or_shared_are_written_beside_each_other(plugins):
    modules = [Stateful(step, **copy.deepcopy(buffers)) for step, buffers in WRITTEN]
    assert_keeps_state(Several(modules), calls(4), plugins)


def test_a_buffer_takes_the_value_of_a_parameter():
    def step(module, x):
        out = module.kept + x
        module.kept.copy_(module.weight)
        return out

    def step_and_write(module, x):
        out = step(module, x) + module.weight
        module.weight.add_(x)
        return out

    for function in (step, step_and_write):
        module = Stateful(function, kept=torch.zeros(4))
        module.weight = nn.Parameter(torch.randn(4))
        assert_keeps_state(module, calls(4))


def count(module, x):
    module.count.add_(2)
    return module.count * x


# A number, an integer, special ones, a part of a tensor, one with strides, and doubles.
STARTS = (
    *(torch.full((4,), 5.0), torch.tensor(7), torch.tensor([math.nan, math.inf, -0.0, 0.0])),
    *(torch.arange(8.0)[2:6], torch.randn(4, 4).t()[1], torch.ones(1, 4, dtype=torch.float64)),
)


@EACH
def test_written_buffers_start_with_their_values(plugins):
    modules = [Stateful(count, count=start.clone()) for start in STARTS]
    assert_keeps_state(Several(modules), calls(4), plugins)


def test_a_written_buffer_that_is_not_saved_with_the_module_starts_with_its_value():
    module = Stateful(count)
    module.register_buffer("count", torch.full((4,), 3.0), persistent=False)
    assert_keeps_state(module, calls(4))


@pytest.mark.parametrize("start", [0.0, 7.0])
def test_a_first_value_is_stored_only_if_it_is_read_and_not_zero(start):
    def overwrite(module, x):
        module.count.copy_(x * 2)
        return x + 1

    steps = [overwrite] if start else [overwrite, count]
    for step in steps:
        module = Stateful(step, count=torch.full((9999,), start))
        lowered = Lowerer([]).lower(module, calls(9999)[0])
        assert len(lowered.to_executorch().buffer) < module.count.nbytes


@EACH
def test_a_written_parameter_is_written(plugins):
    class Decaying(nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            self.weight.mul_(0.5)
            self.bias.add_(1)
            return out

    module = Decaying(4, 3)
    assert_keeps_state(module, calls(2, 4), plugins)
    assert module.weight.requires_grad


def test_a_method_that_writes_to_its_input_is_refused():
    def step(_, x):
        x.add_(1)
        return x * 2

    with pytest.raises(LoweringError) as raised:
        Lowerer([]).plan(Stateful(step), calls(4)[0])
    assert str(raised.value) == (
        "decompose: method 'forward' writes to its input 'x', and ExecuTorch's runtime would "
        "write to a copy of it; clone the input first, and return the new value if it is needed"
    )


def test_a_tensor_that_is_registered_twice_is_one_buffer():
    def step(module, x):
        module.one.add_(x)
        return x * module.other

    tensor = torch.ones(4)
    module = Stateful(step, one=tensor, other=tensor)
    lowered = Lowerer([]).lower(module, calls(4)[0])
    assert torch.equal(tensor, torch.ones(4))
    eager = copy.deepcopy(module)
    eager.other = eager.one
    assert_agrees(lowered, eager, *calls(4))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


@EACH
def test_a_module_with_several_names_has_one_state(plugins):
    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = self.two = Counting()
            self.rest = nn.Sequential(self.one, nn.ReLU(), self.one)

        def forward(self, x):
            return self.rest(self.one(x)) + self.two(x), self.two.calls * 1

    assert_keeps_state(Uses(), calls(4), plugins)


def test_written_buffers_that_overlap_are_refused():
    def step(module, x):
        module.one.add_(1)
        return module.other.sum() + x

    tensor = torch.ones(8)
    module = Stateful(step, one=tensor[:5], other=tensor[3:])
    with pytest.raises(LoweringError) as raised:
        Lowerer([]).lower(module, calls(4)[0])
    assert str(raised.value) == (
        "functionalise: buffers 'one' and 'other' share memory, the method writes to it, and a "
        ".pte would keep them apart; register the whole tensor, and take views of it in the method"
    )


def test_written_buffers_in_one_storage_may_be_apart():
    def step(module, x):
        module.one.add_(x)
        module.other.mul_(2)
        return module.one + module.other

    tensor = torch.ones(2, 4)
    assert_keeps_state(Stateful(step, one=tensor[0], other=tensor[1]), calls(4))


def test_an_edge_program_of_the_caller_is_completed_and_not_changed():
    module = Stateful(count, count=torch.full((4,), 5.0))
    with torch.no_grad():
        program = to_edge(torch.export.export(module, calls(4)[0])).exported_program()
    nodes = {node.name: dict(node.meta) for node in program.graph.nodes}
    lowered = Lowerer([]).lower(program)
    assert {node.name: dict(node.meta) for node in program.graph.nodes} == nodes
    [[first], [second]] = execute(lowered, *[(torch.ones(4),)] * 2)
    assert torch.equal(first, torch.full((4,), 7.0))
    assert torch.equal(second, torch.full((4,), 9.0))


def with_a_part_of_a_tensor():
    layer = nn.Linear(4, 3)
    layer.weight = nn.Parameter(torch.randn(2, 3, 4)[1])
    return layer


@pytest.mark.slice("written by both")
@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (Stateful(count, count=torch.full((4,), 5.0)), (4,)),
        (Stateful(remember, older=torch.zeros(4), newer=torch.zeros(4)), (4,)),
        (with_a_part_of_a_tensor(), (2, 4)),
    ],
    ids=["first values", "written by both", "part of a tensor"],
)
def test_a_partitioner_keeps_state_too(module, shape):
    inputs = calls(*shape)
    with torch.no_grad():
        manager = by_partitioner(copy.deepcopy(module), inputs[0], ["cpu"])
    assert_agrees(manager, module, *inputs)


def test_a_partitioner_refuses_a_result_that_the_next_branch_overwrites():
    def step(_, x):
        first = torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,))
        return first + torch.cond(x.max() > 0, lambda x: x * 2, lambda x: x - 1, (x,))

    with pytest.raises(LoweringError, match="or misplace its view; lower with"):
        by_partitioner(Stateful(step), (torch.randn(4),), ["cpu"])
