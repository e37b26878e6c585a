"""prepare: programs that ExecuTorch's conversion can't read, rewritten by a plugin."""

import copy

import pytest
import torch
from attrs import define, field
from support.toys.runtime import assert_agrees
from torch import nn

from etdev import Lowerer, hookimpl
from etdev.errors import PluginError

X = torch.rand(2, 4)
# The edge dialect knows no op of this name, and ExecuTorch no kernel.
torch.library.define("etdev_test::twice", "(Tensor x) -> Tensor")


@torch.library.impl("etdev_test::twice", "CompositeExplicitAutograd")
def twice(x):
    return x * 2


@torch.library.register_fake("etdev_test::twice")
def twice_shape(x):
    return torch.empty_like(x)


class Net(nn.Module):
    def forward(self, x):
        return torch.ops.etdev_test.twice(x) + 1


@define(eq=False)
class Preparer:
    """Replaces `twice` by what it does."""

    name: str = "preparer"
    seen: list = field(factory=list)

    @hookimpl
    def prepare(self, program, method):
        self.seen.append((method, [str(n.target) for n in program.graph.nodes]))
        return program.run_decompositions({torch.ops.etdev_test.twice.default: lambda x: x * 2})


def test_a_program_is_lowered_as_a_plugin_prepared_it():
    program = torch.export.export(Net(), (X,))
    before = str(program.graph)
    lowered = Lowerer([Preparer(), "cpu"]).lower(program)
    assert_agrees(lowered, Net(), (X,))
    assert str(program.graph) == before


def test_each_plugin_gets_what_the_one_before_it_returned_once_per_method():
    first, second = Preparer("first"), Preparer("second")
    Lowerer([first, second]).plan({"one": (Net(), X), "two": (Net(), X)})
    assert [method for method, _ in first.seen] == ["one", "two"]
    assert all("etdev_test.twice.default" in ops for _, ops in first.seen)
    assert not any("etdev_test.twice.default" in ops for _, ops in second.seen)


class Halves(torch.nn.Module):
    """Takes and returns what the test asks for."""

    def __init__(self, *outputs):
        super().__init__()
        self.outputs = outputs

    def forward(self, x):
        return tuple(x.to(dtype) for dtype in self.outputs)


@pytest.mark.parametrize(
    ("x", "outputs", "change"),
    [
        (torch.ones(2), [torch.float64, torch.int32],
         "outputs"),
        (torch.ones(2), [torch.int32],
         "outputs"),
        (torch.ones(2, 1), [torch.float64],
         "inputs"),
    ],
    ids=str,
)  # fmt: skip
def test_a_program_that_takes_or_returns_something_else_is_refused(x, outputs, change):
    class Another:
        name = "another"

        @hookimpl
        def prepare(self):
            return torch.export.export(Halves(*outputs), (x,))

    with pytest.raises(PluginError) as caught:
        Lowerer([Another()]).plan(Halves(torch.float64), torch.ones(2))
    cure = "return a program that takes and returns the same"
    assert str(caught.value) == f"another: prepare changed the {change} of method 'forward'; {cure}"


class Total(nn.Module):
    """A sum that is kept in a buffer, or only returned for the caller to keep."""

    def __init__(self, keeps):
        super().__init__()
        self.keeps = keeps
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x):
        if self.keeps:
            self.total.add_(x)
            return (x * 2,)
        return x * 2, self.total + x


def test_a_last_output_may_become_the_new_value_of_a_buffer():
    class Keeping:
        name = "keeping"

        @hookimpl
        def prepare(self):
            program = torch.export.export(Total(keeps=True), (torch.ones(2),))
            return program.run_decompositions({})

    lowered = Lowerer([Keeping()]).lower(Total(keeps=False), torch.ones(2))
    signature = lowered.edge.exported_program().graph_signature
    assert list(signature.buffers_to_mutate.values()) == ["total"]
    assert len(signature.user_outputs) == 1


def test_a_deep_copy_does_not_say_what_its_inputs_are_and_is_taken():
    class Copying:
        name = "copying"

        @hookimpl
        def prepare(self, program):
            return copy.deepcopy(program)

    assert Lowerer([Copying()]).plan(Halves(torch.float64), torch.ones(2)).methods


def test_dynamic_sizes_may_have_other_symbols_afterwards():
    dynamic = {"x": {0: torch.export.Dim("rows", min=2, max=8)}}

    class Anew:
        name = "anew"

        @hookimpl
        def prepare(self, program):
            return torch.export.export(program.module(), (X,), dynamic_shapes=dynamic)

    program = torch.export.export(Net(), (X,), dynamic_shapes=dynamic)
    assert Lowerer([Anew()]).plan(program)["forward"]
