"""The budget: how it reads, and that a lowering above it fails before anything is compiled.

What counts against it is in cases/budget.txt.
"""

import pytest
from models import nets
from toys.runtime import assert_agrees

from etdev import Budget, Lowerer
from etdev.errors import BudgetError

CURE = "raise max_fallback_nodes, allow their ops with fallback_ops, or add a plugin"


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
    module, inputs = nets.mlp()
    budget = Budget(fallback_ops=["aten.native_layer_norm.*"])
    assert_agrees(Lowerer(["cpu"], budget=budget).lower(module, inputs), module, inputs)
