"""Costs of nodes are torch's counts at the largest sizes, and slow chains are named in one line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.models import nets
from support.models.small import Function
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from etdev import Lowerer, diff
from etdev.errors import BudgetError
from etdev.report import presenters
from etdev.report.explanation import Explanation
from etdev.report.holes import holes
from etdev.schema.cost import Workload, seconds

IMAGE = torch.randn(1, 3, 32, 32)


def plan_of(module: nn.Module, *inputs: Tensor, plugins: Any = ("cpu",), **options: Any) -> Any:
    return Lowerer(list(plugins), **options).plan(module.eval(), inputs)["forward"]


def attention() -> Any:
    return Function(functional.scaled_dot_product_attention), (torch.randn(1, 2, 6, 8),) * 3


@pytest.mark.slice("cpu-conv_net", "portable-attention")
@pytest.mark.parametrize("make", [nets.mlp, nets.conv_net, attention])
@pytest.mark.parametrize("plugins", [["cpu"], []], ids=["cpu", "portable"])
def test_flops_are_torchs_own(make: Any, plugins: Any) -> None:
    module, inputs = make()
    counter = FlopCounterMode(display=False)
    # Its count lacks the kernels of attention for CPUs.
    with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        module(*inputs)
    plan = Lowerer(plugins).plan(module, inputs)["forward"]
    assert sum(cost.flops for cost in plan.ledger.costs().values()) == counter.get_total_flops()


def test_views_cost_nothing_and_parts_of_a_table_what_is_read() -> None:
    def function(x: Tensor, rows: Tensor) -> Tensor:
        return table[rows] + x.view(2, 6).exp().sum()

    table = torch.randn(1000, 6)
    plan = plan_of(Function(function), torch.randn(3, 4), torch.tensor([1, 2]), plugins=[])
    costs = {entry.op: entry.cost for entry in plan.ledger}
    assert costs["aten.view_copy.default"] == Workload()
    assert costs["aten.exp.default"] == Workload(0, 2 * 12 * 4)
    assert costs["aten.index.Tensor"] == Workload(0, 2 * 12 * 4 + 2 * 8)
    shown = {item.op: item.share for item in Explanation(one(plan)).missed}
    assert shown["aten.view_copy.default"] == "none at run time"


def one(plan: Any) -> Any:
    from etdev import Plan

    return Plan((plan,))


def test_a_dynamic_size_counts_at_its_largest() -> None:
    module, rows = nn.Linear(4, 8), torch.export.Dim("rows", max=50)
    program = torch.export.export(module, (torch.randn(3, 4),), dynamic_shapes=({0: rows},))
    (entry,) = Lowerer(["cpu"]).plan(program)["forward"].ledger
    assert entry.cost == Workload(2 * 50 * 4 * 8, 4 * (50 * 4 + 50 * 8 + 4 * 8 + 8))


class Doubles(nn.Module):
    """A convolution in float64, which XNNPACK doesn't compute."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.stem(x.double()).relu().float() * 2


def test_slow_nodes_are_one_line_with_module_reason_and_cure() -> None:
    found = holes(plan_of(Doubles(), IMAGE))
    (text,) = map(str, found[:1])
    assert text.startswith("slow: aten.convolution.default of stem and ")
    assert f"on portable kernels, about {found[0].part:.0%} of the time" in text
    assert found[0].part > 0.8
    assert "float64" in text
    assert text.endswith("; change that, or add a plugin that takes it")


def test_pieces_of_a_layer_that_are_alike_are_one_line() -> None:
    volume = torch.randn(1, 1, 24, 24, 24)
    plan = plan_of(nn.Sequential(nn.Conv3d(1, 8, 3), nn.ReLU()), volume, plugins=[])
    hole, *_ = holes(plan)
    assert [entry.op for entry in hole.nodes].count("aten.convolution.default") == 3
    assert "of 0 and " in str(hole)


@pytest.mark.slice("mlp", "conv")
@pytest.mark.parametrize("make", [nets.mlp, nets.conv_net, nets.bert], ids=["mlp", "conv", "bert"])
def test_what_is_delegated_or_small_is_no_hole(make: Any) -> None:
    module, inputs = make()
    assert not holes(Lowerer(["cpu"]).plan(module, inputs)["forward"])


def test_each_op_takes_its_time_by_what_computes_it() -> None:
    cost = Workload(flops=10**6, moved_bytes=10**4)
    convolution, linear = "aten.convolution.default", "aten.linear.default"
    ops = (linear, True), (linear, False), (convolution, True), (convolution, False)
    times = [seconds(cost, op, delegated) for op, delegated in ops]
    assert times == sorted(times)
    assert times[3] > 20 * times[2]
    copied, chosen = (seconds(cost, f"aten.{op}", False) for op in ("cat.default", "where.self"))
    assert chosen > copied
    # A call takes longer than what it does to a few numbers; a view is not called.
    assert seconds(Workload(moved_bytes=8), linear, delegated=True) > 9e-7
    assert seconds(Workload(), "aten.view_copy.default", delegated=False) == 0


def test_ops_on_portable_kernels_are_ranked_by_their_time() -> None:
    def function(x: Tensor) -> Tensor:
        small = x[:2, :2].cumsum(0).cumsum(1).cumsum(0)
        return functional.pad(small.sum() + x, (1, 1)).flip(0)

    items = Explanation(one(plan_of(Function(function), torch.randn(200, 200)))).missed
    assert items[0].op == "aten.flip.default"
    assert next(item for item in items if "cumsum" in item.op).nodes[2:]


def test_a_budget_limits_the_share_of_the_cost() -> None:
    module, x = Doubles(), IMAGE
    with pytest.raises(BudgetError, match=r"^budget: 10% of the cost of forward may be left to"):
        plan_of(module, x, budget={"fallback_share": 0.1})
    free = {"fallback_share": 0.1, "fallback_ops": ["aten.*", "dim_order_ops.*"]}
    plan_of(module, x, budget=free)
    plan_of(nn.Linear(4, 4), torch.randn(2, 4), budget={"fallback_share": 0})


def test_a_difference_has_the_cost_on_portable_kernels() -> None:
    module, inputs = nets.mlp()
    before, after = (Lowerer(plugins).plan(module, inputs) for plugins in (["cpu"], []))
    figures = {figure.what: (figure.before, figure.after) for figure in diff(before, after).figures}
    assert figures["forward: FLOPs on portable kernels"] == (0, 12288)


def test_of_several_methods_each_row_has_its_own() -> None:
    made = {name: (nets.mlp()[0], nets.mlp()[1]) for name in ("encode", "decode")}
    sheet = presenters.missed(Explanation(Lowerer(["cpu"]).plan(made)))
    assert {row[0].partition(": ")[0] for row in sheet.rows} == {"encode", "decode"}
