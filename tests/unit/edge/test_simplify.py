"""Simplification: fewer nodes, the same values bit for bit, and a plan that says so."""

from __future__ import annotations

import copy
import inspect
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.runtime import Runtime
from support.models import nets
from support.models.small import Attention, Function
from support.quirks import model
from support.toys import Takes
from support.toys.runtime import assert_agrees, execute
from torch import nn
from torch.export import Dim

from etdev import Lowerer, Plan
from etdev.edge.simplify import folding
from etdev.graph.nodes import fingerprint, op_name
from etdev.runtime.run import run

SDPA = torch.ops.aten.scaled_dot_product_attention.default
X = torch.ones(3)
EDGES = torch.tensor([[math.nan, math.inf, -math.inf], [0.0, -0.0, 1e-40], [1.5, -2.5, 3e38]])


def programs(module: nn.Module, inputs: tuple[Any, ...], **options: Any) -> Any:
    """The module lowered as it is and simplified, on portable kernels."""
    with torch.no_grad():
        exported = torch.export.export(module, inputs, **options)
    before = fingerprint(exported.graph)
    pair = [Lowerer([], simplify=simplify).lower(exported) for simplify in (False, True)]
    assert fingerprint(exported.graph) == before
    return pair


def ops(lowered: Any) -> list[str]:
    nodes = lowered.lowering.programs["forward"].graph.nodes
    return [op_name(node) for node in nodes if node.op == "call_function"]


def agree(
    module: nn.Module, *calls: tuple[Any, ...], folds: bool = False, **options: Any
) -> dict[str, int]:
    """Both give bit for bit what the other gives on every call, and eager's values.

    Args:
        folds: Float constants are computed, so that the last bit is eager's and not the kernel's.

    Returns:
        What the plan says was simplified.
    """
    return agreeing(programs(module, calls[0], **options), module, *calls, folds=folds)


def agreeing(
    pair: Any, module: nn.Module, *calls: tuple[Any, ...], folds: bool = False
) -> dict[str, int]:
    """Compare two programs that are lowered already, as above."""
    plain, simple = pair
    eager = copy.deepcopy(module)
    results = zip(execute(plain, *calls), execute(simple, *calls), calls, strict=True)
    for one, other, inputs in results:
        with torch.no_grad():
            expected = eager(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for a, b, c in zip(one, other, expected, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert torch.equal(a.isnan(), b.isnan())
            assert folds or torch.equal(_bits(a), _bits(b))
            torch.testing.assert_close(b, c, equal_nan=True)
    assert not plain.plan["forward"].simplified
    return dict(simple.plan["forward"].simplified)


def _bits(value: torch.Tensor) -> torch.Tensor:
    return value.nan_to_num(0.0, math.inf, -math.inf).contiguous().reshape(-1).view(torch.uint8)


COPIES = {
    "a clone": lambda x: (x * 2.0).clone() * 3.0,
    "an expansion to its own sizes": lambda x: (x * 2.0).expand(3, 3) * 3.0,
    "a view of its own sizes": lambda x: (x * 2.0).view(3, 3) * 3.0,
    "a slice of everything": lambda x: (x * 2.0)[0:3] * 3.0,
    "a permutation that permutes nothing": lambda x: (x * 2.0).permute(0, 1) * 3.0,
    "a permutation and its inverse": lambda x: (x * 2.0).permute(1, 0).permute(1, 0) * 3.0,
    "a view of a view": lambda x: (x * 2.0).view(9).view(1, 9) * 3.0,
    "a conversion to its own type": lambda x: (x * 2.0).to(torch.float32) * 3.0,
}


@pytest.mark.slice(
    "a clone", "a slice of everything", "a permutation and its inverse", "a view of a view"
)
@pytest.mark.parametrize("function", COPIES.values(), ids=COPIES)
def test_a_copy_of_the_same_is_left_out(function: Any) -> None:
    pair = programs(Function(function), (EDGES,))
    kinds = agreeing(pair, Function(function), (EDGES,), (-EDGES,))
    assert kinds.keys() <= {"copies", "scalars", "constants", "unused"}
    simple = pair[1]
    assert [op for op in ops(simple) if op != "aten.view_copy.default"] == ["aten.mul.Tensor"] * 2


MASKS = {
    "not equal": lambda x: torch.where(~(x == 1.5), x, 0.0),
    "and with true": lambda x: torch.where((x > 0) & torch.ones(3, 3, dtype=torch.bool), x, 1.0),
    "and with less": lambda x: torch.where(x.isnan().any() & (torch.arange(3) < 9), x, 1.0),
    "a tensor full of one value": lambda x: torch.where(x > 0, torch.full_like(x, 2.5), x),
    "a condition that is negated": lambda x: torch.where(~(x > 0), x, x * x),
}


@pytest.mark.slice("not equal", "and with less", "a condition that is negated")
@pytest.mark.parametrize("function", MASKS.values(), ids=MASKS)
def test_a_mask_that_masks_nothing_or_too_much_is_simpler(function: Any) -> None:
    kinds = agree(Function(function), (EDGES,), (torch.zeros(3, 3),), (-EDGES,))
    assert kinds.get("masks"), kinds


def test_a_mask_of_integers_is_not_one_of_truths() -> None:
    # 2 is not all ones, and `and` with 1 takes bits away.
    kinds = agree(
        Function(lambda x: (x & torch.ones(3, dtype=torch.int64)) | 0), (torch.arange(3),)
    )
    assert "masks" not in kinds


def test_what_constants_decide_is_computed_once() -> None:
    def positions(net: Any, x: torch.Tensor) -> torch.Tensor:
        angles = torch.outer(torch.arange(3.0), torch.tensor([1.0, 0.1]))
        return x + net.table(torch.arange(3)) + torch.cat([angles.cos(), angles.sin()], 1)

    module = model(positions, table=nn.Embedding(6, 4))
    calls = [(torch.randn(3, 4),), (torch.full((3, 4), math.nan),)]
    pair = programs(module, calls[0])
    kinds = agreeing(pair, module, *calls, folds=True)
    assert kinds["constants"] > 4
    simple = pair[1]
    assert ops(simple) == ["aten.add.Tensor", "aten.add.Tensor"]
    # The table isn't read any more.
    assert not simple.lowering.programs["forward"].state_dict


def test_what_is_computed_twice_is_computed_once() -> None:
    kinds = agree(Function(lambda x: (x.exp() * x, x.exp() + x)), (EDGES,))
    assert kinds == {"duplicates": 1}
    # These look the same and are not.
    twice = Function(lambda x: (x.div(0.0) + 1, x.div(-0.0) + 2))
    assert "duplicates" not in agree(twice, (torch.ones(3),))


def test_a_number_is_a_constant_of_a_float32_op_only() -> None:
    numbers = Function(lambda x: (x * 0.1 + 3.0 - 1e-30) / 3.0)
    assert agree(numbers, (EDGES,), (-EDGES,)).get("scalars", 0) <= 4
    for dtype in (torch.int64, torch.float64, torch.float16):
        assert "scalars" not in agree(Function(lambda x: x * 3), (torch.arange(4).to(dtype),))
    assert "scalars" not in agree(Function(lambda x: x * 0.1), (torch.tensor(2.0),))


def test_attention_keeps_its_values_where_everything_is_masked() -> None:
    def attend(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = (x @ x.transpose(-1, -2)).masked_fill(torch.logical_not(mask), -math.inf)
        shown = torch.logical_not(scores == -math.inf).any(-1, keepdim=True)
        hidden = torch.full_like(scores, 0)
        return torch.where(torch.logical_not(shown), hidden, scores.softmax(-1)) @ x

    attention = Function(attend)
    x = torch.randn(1, 2, 4, 8)
    masks = [torch.rand(4, 4) < 0.5, torch.zeros(4, 4, dtype=torch.bool)]
    poisoned = x.clone()
    poisoned[0, 0, 1, 3] = math.nan
    huge = x * 1e30
    calls = [(value, mask) for value in (x, poisoned, huge) for mask in masks]
    pair = programs(attention, calls[0])
    kinds = agreeing(pair, attention, *calls)
    assert kinds["masks"] == 3
    simple = pair[1]
    assert not {"aten.logical_not.default", "aten.full_like.default"} & set(ops(simple))


def test_an_op_that_was_kept_whole_and_not_taken_is_simplified_in_its_pieces() -> None:
    attention = Attention(is_causal=True)
    inputs = (torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8))
    keeper = Takes("keeper", ("none",), whole=(SDPA,))
    alone = Lowerer(["cpu"]).plan(attention, inputs)["forward"]
    lowered = Lowerer([keeper, "cpu"]).lower(attention, inputs)
    beside = lowered.plan["forward"]
    assert beside.simplified
    owned = beside.ledger.owned()
    assert owned["cpu"] == alone.ledger.owned()["cpu"]
    for value in (*inputs, torch.zeros(1, 2, 4, 8)):
        assert_agrees(lowered, attention, (value, inputs[1]))


def test_a_dynamic_size_is_not_taken_for_the_examples() -> None:
    rows = Dim("rows", min=1, max=8)
    shapes = {"inputs": ({0: rows},)}
    function = Function(
        lambda x: (x.expand(x.shape[0], 3).clone() * 2.0).view(-1, 3) + torch.arange(3)
    )
    calls = [(torch.randn(size, 3),) for size in (3, 1, 8)]
    assert agree(function, *calls, dynamic_shapes=shapes)


def test_what_a_method_writes_is_not_a_constant() -> None:
    def counted(net: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        old = net.count.clone()
        net.count.mul_(net.scale.exp()).clamp_(max=1e6)
        return old * x, net.count.clone()

    counter = model(counted, count=torch.ones(3), scale=torch.full((3,), 2.0))
    calls = [(torch.full((3,), float(step)),) for step in range(4)]
    assert agree(counter, *calls)["constants"] == 1


@pytest.mark.parametrize(
    "function",
    [lambda x: x + torch.rand(3) - torch.rand(3), lambda x: (x.double() * 2).sin().float()],
    ids=["chance", "a dtype that backends may lack"],
)
def test_there_is_nothing_to_simplify(function: Any) -> None:
    with torch.no_grad():
        plan = Lowerer([]).plan(Function(function), (torch.ones(3),))["forward"]
    assert not plan.simplified


def test_a_large_result_stays_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Function(lambda x: x + torch.arange(64.0).cos())
    assert agree(module, (torch.ones(64),), folds=True) == {"constants": 2}
    monkeypatch.setattr(folding, "MOST_BYTES", 255)
    assert agree(module, (torch.ones(64),)) == {}


def test_a_weight_that_is_only_turned_keeps_its_name(tmp_path: Path) -> None:
    registry = tmp_path / "registry.toml"
    registry.write_text('[plugins.portable.options]\nkernels = "portable"\n')
    module = nn.Linear(4, 4).eval()
    plan = Lowerer([], registry=registry).plan(module, (torch.ones(1, 4),))["forward"]
    assert [entry.op for entry in plan.ledger] == [
        "aten.permute_copy.default",
        "aten.addmm.default",
    ]
    assert not plan.simplified


def test_results_stay_tensors_of_their_own() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * x
        return y, y.clone(), x.clone(), torch.arange(3.0), torch.arange(3.0)

    agree(Function(function), (torch.arange(3.0),))


def test_channels_last_values_are_not_given_numbers_of_another_layout() -> None:
    example = torch.randn(1, 3, 2, 2).to(memory_format=torch.channels_last)
    plan = Lowerer([]).plan(Function(lambda x: x * 2.0 + 0.5), (example,))
    assert "scalars" not in plan["forward"].simplified


def test_a_program_with_nothing_to_simplify_keeps_its_bytes() -> None:
    module, inputs = nets.mlp()
    plain, simple = (
        Lowerer(["cpu"], simplify=simplify).lower(module, inputs) for simplify in (False, True)
    )
    assert simple.plan == plain.plan
    assert simple.to_executorch().buffer == plain.to_executorch().buffer


def test_a_program_in_the_edge_dialect_is_as_its_maker_wants_it() -> None:
    from executorch.exir import to_edge

    exported = torch.export.export(Function(lambda x: x.clone() * 2 + x), (torch.ones(3),))
    edge = to_edge(exported).exported_program()
    assert not Lowerer([]).plan(edge)["forward"].simplified


@pytest.mark.suite
def test_bert_has_fewer_delegates_and_kernels() -> None:
    module, inputs = nets.bert()
    plain, simple = (
        Lowerer(["cpu"], simplify=simplify).plan(module, inputs)["forward"]
        for simplify in (False, True)
    )
    assert len(simple.partitions) < len(plain.partitions)
    assert 2 * len(simple.fallback) < len(plain.fallback)


def test_the_plan_counts_what_was_simplified_by_kind() -> None:
    plan = Lowerer([]).plan(Function(lambda x: (x + x).clone() * torch.arange(3.0).cos()), (X,))
    assert plan["forward"].simplified == {"copies": 1, "constants": 2}
    assert Plan.from_json(plan.to_json()) == plan


def test_a_new_value_that_was_a_copy_of_another_buffer_is_not_read_after_that_is_written() -> None:
    def shifted(net: Any, x: torch.Tensor) -> torch.Tensor:
        old = net.now.view(2, 2).clone().view(4).clone().view(2, 2)
        new = net.now + x
        net.now.copy_(new)
        net.before.copy_(old)
        return new.sum() + old.view(4)

    module = model(shifted, now=torch.zeros(4), before=torch.zeros(2, 2))
    agree(module, *[(torch.full((4,), float(step)),) for step in range(1, 5)])


@pytest.mark.parametrize("external", [False, True], ids=["inside", "in a .ptd"])
def test_methods_may_fold_constants_of_one_name(tmp_path: Path, external: bool) -> None:
    if external and "data_path" not in inspect.signature(Runtime.load_program).parameters:
        pytest.skip("this ExecuTorch can't load a .ptd from Python")

    class Scaled(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale, self.weight = scale, nn.Parameter(torch.full((3,), scale))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.full((3,), self.scale).cos() + self.weight

    # Under one name, since parameters would collide in a .ptd with or without us.
    modules = {"one": Scaled(1.0), "two": Scaled(2.0)}
    modules["two"].weight = modules["one"].weight
    x = torch.ones(3)
    with torch.no_grad():
        methods = {name: torch.export.export(module, (x,)) for name, module in modules.items()}
    lowered = Lowerer([]).lower(methods)
    assert all(lowered.plan[name].simplified for name in modules)
    config = ExecutorchBackendConfig(external_constants=external)
    path = lowered.save(tmp_path / "net.pte", config)
    for name, module in modules.items():
        torch.testing.assert_close(run(path, (x,), method=name).outputs[0], module(x))


@pytest.mark.suite
def test_numbers_that_no_float32_holds_stay_as_they_are() -> None:
    for number in (1e300, -1e300, math.inf, -math.inf, math.nan, 2**40, 16777217):
        agree(Function(lambda x, number=number: x * number), (EDGES,))


def test_a_tensor_full_of_a_size_or_of_what_its_dtype_does_not_hold_is_left() -> None:
    rows = Dim("rows", min=1, max=8)
    function = Function(lambda x: torch.where(x > 0, torch.full_like(x, x.shape[0]), x))
    calls = [(torch.randn(size, 3),) for size in (3, 1, 8)]
    agree(function, *calls, dynamic_shapes={"inputs": ({0: rows},)})
    integers = Function(lambda x: torch.where(x > 0, torch.full_like(x, 2.7), x))
    agree(integers, (torch.tensor([1, -1, 3]),))


def test_large_constants_are_computed_in_one_thread() -> None:
    def mean(net: Any, x: torch.Tensor) -> torch.Tensor:
        return x + net.table.exp().sum(1)[:3] + net.table[:3, 0]

    module = model(mean, table=nn.Parameter(torch.rand(64, 2048)))
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            lowered = Lowerer([]).lower(module, (torch.ones(3),))
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        found.append(lowered.to_executorch().buffer)
    assert {entry.op for entry in lowered.plan["forward"].ledger} == {"aten.add.Tensor"}
    assert found[0] == found[1]


@pytest.mark.suite
def test_a_weight_that_only_its_parts_are_read_for_is_computed_once() -> None:
    normalised = torch.nn.utils.parametrizations.weight_norm
    layers = normalised(nn.Conv1d(64, 128, 7)), normalised(nn.Linear(16, 300))
    module = nn.Sequential(*layers).eval()
    example = (torch.randn(1, 64, 22),)
    sizes = []
    for simplify in (False, True):
        lowered = Lowerer(["cpu"], simplify=simplify).lower(module, example)
        sizes.append(len(lowered.to_executorch().buffer))
        assert_agrees(lowered, module, example, (torch.randn(1, 64, 22),))
    plan = lowered.plan["forward"]
    assert (len(plan.partitions), plan.fallback) == (1, ())
    assert sizes[1] < sizes[0] + 1024


@pytest.mark.suite
def test_the_parts_of_a_weight_that_is_split_are_constants() -> None:
    # Of its weight, cross attention splits off the rows for keys and values.
    attention = nn.MultiheadAttention(64, 4, batch_first=True).eval()
    module = Function(lambda x, y: attention(x, y, y, need_weights=False)[0])
    calls = [(torch.randn(1, 5, 64), torch.randn(1, 7, 64)) for _ in range(3)]
    lowered = Lowerer([]).lower(module, calls[0])
    assert_agrees(lowered, module, *calls)
    assert {"aten.split_with_sizes_copy.default", "getitem"}.isdisjoint(ops(lowered))
    whole = Lowerer([], simplify=False).lower(module, calls[0]).to_executorch().buffer
    assert len(lowered.to_executorch().buffer) < len(whole) * 1.02


def test_a_weight_that_other_ops_read_is_not_stored_again() -> None:
    def twice(net: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x, net.weight.transpose(1, 2)) + torch.bmm(x, net.weight).mean()

    for function, folded in (
        (twice, False),
        (lambda net, x: torch.bmm(x, net.weight.transpose(1, 2)), True),
    ):
        module = model(function, weight=nn.Parameter(torch.randn(8, 96, 96)))
        calls = [(torch.randn(8, 5, 96),) for _ in range(3)]
        lowered = Lowerer(["cpu"]).lower(module, calls[0])
        assert_agrees(lowered, module, *calls)
        ops = {entry.op for entry in lowered.plan["forward"].ledger}
        assert ("aten.permute_copy.default" in ops) != folded


@pytest.mark.suite
def test_what_constants_decide_of_an_op_that_no_plugin_has_whole_is_computed_once() -> None:
    module = nn.Sequential(nn.Conv3d(4, 64, 3), nn.ReLU(), nn.ConvTranspose3d(64, 8, 3)).eval()
    example = (torch.randn(1, 4, 5, 6, 6),)
    sizes = []
    for simplify in (False, True):
        lowered = Lowerer(["cpu"], simplify=simplify).lower(module, example)
        sizes.append(len(lowered.to_executorch().buffer))
        assert_agrees(lowered, module, example, (torch.randn(1, 4, 5, 6, 6),))
    ops = [entry.op for entry in lowered.plan["forward"].ledger]
    assert "aten.select_copy.int" not in ops
    # The weights are stored in slices instead, not beside them.
    assert sizes[1] < sizes[0] + 20_000
    fallback = {entry.op for entry in lowered.plan["forward"].ledger if entry.falls_back}
    assert "aten.convolution.default" not in fallback


@pytest.mark.suite
def test_the_pte_does_not_grow_by_all_that_could_be_folded() -> None:
    module = Function(
        lambda x: torch.stack([x * torch.arange(8192.0).sin() * i for i in range(20)])
    )
    sizes = []
    for simplify in (False, True):
        lowered = Lowerer([], simplify=simplify).lower(module, (torch.ones(8192),))
        sizes.append(len(lowered.to_executorch().buffer))
    assert sizes[1] < sizes[0] + (64 << 10)


def test_ops_of_others_keep_what_they_read() -> None:
    def theirs(net: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.simplify_theirs.scale(x, net.table) + net.table.exp()

    @torch.library.custom_op("simplify_theirs::scale", mutates_args=())
    def scale(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return x * table

    scale.register_fake(lambda x, table: torch.empty_like(x))
    with torch.no_grad():
        module = model(theirs, table=nn.Parameter(torch.rand(3, 3)))
        plan = Lowerer([]).plan(module, (torch.ones(3, 3),))
    assert any(e.op.startswith("simplify_theirs") for e in plan["forward"].ledger)


def test_what_is_left_of_a_call_does_not_pass_for_all_of_it() -> None:
    """Backends take all nodes of `linear` for a layer with its weight's transpose."""
    turned = torch.ones(4, 4).tril()

    def forward(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x[0], turned.t()) + x.relu()

    with torch.no_grad():
        exported = torch.export.export(Function(forward), (torch.ones(3, 4),), strict=True)
    edge = Lowerer([]).lower(exported).edge.exported_program()
    calls = {
        op_name(n): n.meta["source_fn_stack"][-1][1]
        for n in edge.graph.nodes
        if n.meta.get("source_fn_stack")
    }
    assert calls["aten.mm.default"] == ""
    assert calls["aten.relu.default"] != ""


def test_branches_stay_as_they_are_and_what_they_take_too() -> None:
    def chosen(x: torch.Tensor) -> torch.Tensor:
        def yes(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
            return (x.clone() + table).clone()

        table = torch.arange(3.0).cos()
        return torch.cond(x.sum() > 0, yes, torch.sub, (x.clone(), table)) * 2.0

    agree(Function(chosen), (torch.ones(3),), (-torch.ones(3),), folds=True)
