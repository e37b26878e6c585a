"""The budget: more on portable kernels than it allows fails the plan, with the nodes and why."""

import pytest
import torch
from models import nets
from torch import nn
from toys import Takes

from etdev import Budget, Lowerer, registry
from etdev.errors import BudgetError

CURE = "raise max_fallback_nodes, allow their ops with fallback_ops, or add a plugin"
X = (torch.randn(2, 4),)


class Mixed(nn.Module):
    """Seven sums and a product."""

    def forward(self, x):
        for _ in range(7):
            x = x + 1.0
        return x * x


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixed = Mixed()

    def forward(self, x):
        return self.mixed(x)


def plan(budget, *takes, **options):
    lowerer = Lowerer([Takes("a", takes or ("none",))], budget=budget, **options)
    return lowerer.plan(Outer(), X)


@pytest.mark.parametrize(
    "budget",
    [
        {"max_fallback_nodes": 8},
        {"max_fallback_nodes": 1, "fallback_ops": ["aten.add.*"]},
        {"fallback_ops": ["aten.add.Tensor", "aten.mul.*"]},
        {"fallback_ops": ["*"]},
        Budget(max_fallback_nodes=9),
    ],
)
def test_a_plan_within_its_budget_passes(budget):
    assert len(plan(budget)["forward"].fallback) == 8


def test_a_budget_counts_only_what_nobody_takes():
    plan({"max_fallback_nodes": 1}, "add.Tensor")
    plan({"max_fallback_nodes": 0}, "add.Tensor", "mul.Tensor")


def test_nodes_above_the_budget_are_listed_with_op_module_and_reasons():
    with pytest.raises(BudgetError) as caught:
        plan({"max_fallback_nodes": 0}, "add.Tensor")
    assert str(caught.value) == (
        "budget: 0 nodes may be left to portable kernels, not 1: "
        f"forward/aten_mul_tensor (aten.mul.Tensor in mixed; a: not mine); {CURE}"
    )


def test_of_many_nodes_the_first_few_are_listed_and_the_rest_counted():
    with pytest.raises(BudgetError) as caught:
        plan({"max_fallback_nodes": 3, "fallback_ops": ["aten.mul.*"]})
    names = ["aten_add_tensor", *(f"aten_add_tensor_{i}" for i in range(1, 5))]
    listed = ", ".join(f"forward/{name} (aten.add.Tensor in mixed; a: not mine)" for name in names)
    assert str(caught.value) == (
        "budget: 3 nodes may be left to portable kernels beside aten.mul.*, not 7: "
        f"{listed}, and 2 more; {CURE}"
    )


def test_a_budget_is_for_all_methods_together():
    lowerer = Lowerer([Takes("a", ("add.Tensor",))], budget={"max_fallback_nodes": 1})
    lowerer.plan({"one": (Mixed(), X)})
    with pytest.raises(BudgetError, match=r"not 2: one/aten_mul_tensor .*, two/aten_mul_tensor "):
        lowerer.plan({"one": (Mixed(), X), "two": (Mixed(), X)})


def test_pinned_nodes_count():
    pinned = [{"op": "aten.mul.*", "plugin": "portable"}]
    with pytest.raises(BudgetError) as caught:
        plan({"max_fallback_nodes": 0}, "add.Tensor", "mul.Tensor", pins=pinned)
    assert "a: pinned by op=aten.mul.*:plugin=portable" in str(caught.value)


def test_without_plugins_nobody_was_asked():
    with pytest.raises(BudgetError, match=r"in mixed; no plugin was asked\)"):
        Lowerer([], budget={"max_fallback_nodes": 7}).plan(Outer(), X)


def test_the_budget_of_the_lowerer_replaces_the_registrys(tmp_path):
    table = registry.parse("[budget]\nmax_fallback_nodes = 7\n", tmp_path / "registry.toml")
    with pytest.raises(BudgetError, match="7 nodes may be left to portable kernels, not 8: "):
        plan(None, registry=table)
    plan({"max_fallback_nodes": 8}, registry=table)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({}, "is {}, which is not a budget; write {'max_fallback_nodes': 10}"),
        (10, "is 10, which is not a budget; write {'max_fallback_nodes': 10}"),
        ({"max_fallback": 1}, "max_fallback is an unknown key; did you mean max_fallback_nodes?"),
        ({"max_fallback_nodes": -1},
         "max_fallback_nodes is -1; it must be a whole number of at least 0"),
        ({"fallback_ops": "aten.add.*"},
         'fallback_ops is \'aten.add.*\'; write ["aten.add.*"]'),
        ({"fallback_ops": [""]}, 'fallback_ops is \'\', which is not a glob; write ["aten.add.*"]'),
    ],
)  # fmt: skip
def test_a_budget_that_makes_no_sense_is_refused(budget, message):
    with pytest.raises(BudgetError) as caught:
        Lowerer([], budget=budget)
    assert str(caught.value) == f"budget: {message}"


def test_a_lowering_above_its_budget_fails_before_it_compiles():
    stages = []
    lowerer = Lowerer(
        ["cpu"],
        budget={"fallback_ops": ["aten.mean.*"]},
        listener=lambda stage, detail: stages.append(stage),
    )
    with pytest.raises(BudgetError) as caught:
        lowerer.lower(*nets.mlp())
    assert str(caught.value) == (
        "budget: 0 nodes may be left to portable kernels beside aten.mean.*, not 1: "
        "forward/aten_native_layer_norm_default (aten.native_layer_norm.default in 2; "
        f"cpu: XNNPACK has no native_layer_norm.default); {CURE}"
    )
    assert "compile" not in stages


def test_a_lowering_within_its_budget_gives_eagers_numbers():
    from executorch.runtime import Runtime

    module, inputs = nets.mlp()
    budget = Budget(fallback_ops=["aten.native_layer_norm.*"])
    lowered = Lowerer(["cpu"], budget=budget).lower(module, inputs)
    program = Runtime.get().load_program(lowered.to_executorch().buffer)
    output = program.load_method("forward").execute(list(inputs))[0]
    torch.testing.assert_close(output, module(*inputs), atol=1e-5, rtol=1e-4)
