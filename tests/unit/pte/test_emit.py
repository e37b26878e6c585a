"""Emission: what ExecuTorch can't write is refused by name, and the caller's settings hold."""

import dataclasses
import re

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from support.models.small import Function
from support.toys.runtime import assert_agrees
from torch import nn
from torch._higher_order_ops.out_dtype import out_dtype
from torch.export import Dim

from etdev import Lowerer
from etdev.errors import LoweringError


class Ones(nn.Module):
    def __init__(self, most):
        super().__init__()
        self.most = most

    def forward(self, n):
        size = n.item()
        if self.most:
            torch._check(size <= self.most)
        return torch.ones(size) * 2


def test_a_size_that_nothing_bounds_is_refused():
    lowered = Lowerer(["cpu"]).lower(Ones(None), (torch.tensor(3),))
    line = Ones.forward.__code__.co_firstlineno + 4
    with pytest.raises(LoweringError) as caught:
        lowered.to_executorch()
    assert "finite upper bound for symbolic expression u" in caught.value.what
    assert caught.value.what.endswith(f" in aten.full.default at test_emit.py:{line}")
    assert caught.value.cure.startswith("say how large that number may be, such as torch._check(n")


def test_a_size_that_is_bounded_is_right():
    calls = [(torch.tensor(size),) for size in (3, 8, 1)]
    assert_agrees(Lowerer(["cpu"]).lower(Ones(8), calls[0]), Ones(8), *calls)


def test_an_op_that_no_kernel_can_run_is_named():
    with torch.library._scoped_library("etdev_tests", "FRAGMENT") as library:
        library.define("halved(Tensor x) -> Tensor")
        library.impl("halved", lambda x: x / 2, "CompositeExplicitAutograd")
        lowered = Lowerer([]).lower(Function(torch.ops.etdev_tests.halved), (torch.ones(3),))
        with pytest.raises(LoweringError) as caught:
            lowered.to_executorch()
    line = Function.forward.__code__.co_firstlineno + 1
    assert str(caught.value) == (
        f"emit: no plugin took etdev_tests.halved.default at small.py:{line}, and "
        "ExecuTorch can't call an op without an out variant; register one with a kernel, or give "
        "the op to a plugin"
    )


def test_ops_with_effects_are_named_with_their_lines():
    def told(x):
        torch.ops.aten._print("told")
        return x + 1

    def written(x):
        y = x.clone()
        torch.ops.etdev_tests.increase_(y)
        return y * 2

    with torch.library._scoped_library("etdev_tests", "FRAGMENT") as library:
        library.define("increase_(Tensor(a!) x) -> ()")
        library.impl("increase_", lambda x: (x.add_(1), None)[1], "CPU")
        library.impl("increase_", lambda x: None, "Meta")
        for function, name in ((told, "aten._print.default"), (written, "auto_functionalized")):
            lowered = Lowerer([]).lower(Function(function), (torch.ones(3),))
            with pytest.raises(LoweringError, match=rf"took {re.escape(name)}.* at small"):
                lowered.to_executorch()


def test_the_reference_representation_of_pt2e_is_refused_with_its_cure():
    product = Function(lambda x: out_dtype(torch.ops.aten.mm.default, torch.int32, x, x))
    lowered = Lowerer(["cpu"]).lower(product, (torch.ones(3, 3, dtype=torch.int8),))
    cure = r"convert_pt2e\(use_reference_representation=False\)"
    with pytest.raises(LoweringError, match=f"took out_dtype at small.py:.*; .*{cure}"):
        lowered.to_executorch()


def test_the_settings_of_the_callers_pass_hold():
    inner = MemoryPlanningPass(alloc_graph_input=False)
    config = ExecutorchBackendConfig(memory_planning_pass={"forward": inner})
    lowered = Lowerer([]).lower(nn.ReLU(), (torch.ones(2),))
    (method,) = lowered.to_executorch(config).executorch_program.execution_plan
    given = method.values[method.inputs[0]].val.allocation_info
    assert given is None
    assert dataclasses.asdict(config)["memory_planning_pass"]


class Dedicated(MemoryPlanningPass):
    """Stands in for the pass of pytorch/executorch#21958, which is not merged.

    It notes each method in `run`, and lays out all of them once in `run_multimethod`.
    """

    def __init__(self, shared_buffer_fqns):
        super().__init__()
        self.shared_buffer_fqns, self.methods, self.laid_out = shared_buffer_fqns, [], []

    def run(self, graph_module, graph_signature=None):
        self.methods.append([*graph_signature.buffers_to_mutate.values()])
        return super().run(graph_module, graph_signature)

    def run_multimethod(self):
        self.laid_out += [self.methods] if self.methods else []
        # Rebound, not emptied.
        self.methods = []


class Total(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


@pytest.fixture(scope="module")
def totals():
    """Two methods, each with state of its own under the same name."""
    methods = {name: (Total(), (torch.ones(4),)) for name in ("one", "two")}
    return Lowerer([], share_state=False).lower(methods)


def test_a_pass_that_places_state_across_methods_sees_all_of_them_once(totals):
    planner = Dedicated(frozenset({"total"}))
    totals.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planner))
    assert planner.laid_out == [[["total"], ["total"]]]


def test_executorchs_own_pass_shares_state_by_name(totals):
    planner = MemoryPlanningPass(share_mutable_buffers=True)
    config = ExecutorchBackendConfig(memory_planning_pass=planner)
    plans = totals.to_executorch(config).executorch_program.execution_plan
    assert [plan.non_const_buffer_sizes[2] for plan in plans] == [16, 16]


def test_a_view_may_have_a_larger_bound_than_its_source():
    def restored(x):
        batch, size = x.shape[0], x.shape[1]
        return x.flatten(0, 2).sin().view(batch, size, size, 4).sum((1, 2))

    calls = [(torch.randn(batch, size, size, 4),) for batch, size in ((2, 3), (4, 8), (1, 2))]
    size = Dim("size", min=2, max=8)
    shapes = (({0: Dim("batch", max=4), 1: size, 2: size},),)
    module = Function(restored)
    assert_agrees(Lowerer([]).lower(module, calls[0], dynamic_shapes=shapes), module, *calls)
