"""The budget: how it reads, and that a lowering above it fails before anything is compiled.

What counts against it is in cases/budget.txt.
"""

import re

import pytest
from support.models import nets

from etdev import Lowerer
from etdev.errors import BudgetError

CURE = "raise max_fallback_nodes, allow their ops with fallback_ops, or add a plugin"


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (10, "budget: is 10; it must be a table"),
        ({"max_fallback": 1},
         "budget.max_fallback: is an unknown key; did you mean max_fallback_nodes?"),
        ({"max_fallback_nodes": -1}, "budget: 'max_fallback_nodes' must be >= 0: -1"),
    ],
)  # fmt: skip
def test_a_budget_that_makes_no_sense_is_refused(budget, message):
    with pytest.raises(BudgetError) as caught:
        Lowerer([], budget=budget)
    assert str(caught.value) == message


def test_a_lowering_above_its_budget_fails_before_it_compiles():
    stages = []
    lowerer = Lowerer(
        ["cpu"],
        budget={"fallback_ops": ["aten.mean.*"]},
        listener=lambda stage, detail: stages.append(stage),
    )
    with pytest.raises(BudgetError) as caught:
        lowerer.lower(*nets.mlp())
    assert re.sub(r"py:\d+", "py:LINE", str(caught.value)) == (
        "budget: 0 nodes may be left to portable kernels besides aten.mean.*, not 1: "
        "aten.native_layer_norm.default at normalization.py:LINE "
        "(forward/aten_native_layer_norm_default; cpu: XNNPACK has no native_layer_norm.default); "
        f"{CURE}"
    )
    assert "compile" not in stages
