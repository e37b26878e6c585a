"""Simplification: fewer nodes, the same values bit for bit, and a plan that says so."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from models import nets
from models.small import Function
from torch import nn
from torch.export import Dim
from toys.runtime import execute

from etdev import Lowerer
from etdev.edge.simplify import folding
from etdev.graph.nodes import fingerprint, op_name

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
    nodes = lowered.decision.programs["forward"].graph.nodes
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
    plain, simple = programs(module, calls[0], **options)
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
    assert plain.plan["forward"].simplified == ()
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


@pytest.mark.parametrize("function", COPIES.values(), ids=COPIES)
def test_a_copy_of_the_same_is_left_out(function: Any) -> None:
    counts = agree(Function(function), (EDGES,), (-EDGES,))
    assert counts.keys() <= {"copies", "scalars", "constants"}
    _, simple = programs(Function(function), (EDGES,))
    assert [op for op in ops(simple) if op != "aten.view_copy.default"] == ["aten.mul.Tensor"] * 2


MASKS = {
    "not not": lambda x: ~~(x > 0) * x,
    "not equal": lambda x: torch.where(~(x == 1.5), x, 0.0),
    "not unequal": lambda x: torch.where((x != math.inf).logical_not(), 1.0, x),
    "and with true": lambda x: torch.where((x > 0) & torch.ones(3, 3, dtype=torch.bool), x, 1.0),
    "and with less": lambda x: torch.where(x.isnan().any() & (torch.arange(3) < 9), x, 1.0),
    "or with false": lambda x: torch.where(torch.arange(3).lt(0) | (x > 0), x, 1.0),
    "a mask of everything": lambda x: torch.where(torch.arange(3) >= 0, x, torch.zeros(3, 3)) / x,
    "a mask of nothing": lambda x: torch.where(torch.arange(3) < 0, torch.zeros(3, 3), x) / x,
    "a tensor full of one value": lambda x: torch.where(x > 0, torch.full_like(x, 2.5), x),
    "a condition that is negated": lambda x: torch.where(~(x > 0), x, x * x),
}


@pytest.mark.parametrize("function", MASKS.values(), ids=MASKS)
def test_a_mask_that_masks_nothing_or_too_much_is_simpler(function: Any) -> None:
    counts = agree(Function(function), (EDGES,), (torch.zeros(3, 3),), (-EDGES,))
    assert counts.get("masks"), counts


def test_a_mask_of_integers_is_not_one_of_truths() -> None:
    # 2 is not all ones, and `and` with 1 takes bits away.
    counts = agree(
        Function(lambda x: (x & torch.ones(3, dtype=torch.int64)) | 0), (torch.arange(3),)
    )
    assert "masks" not in counts


def test_what_constants_decide_is_computed_once() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            angles = torch.outer(torch.arange(3.0), torch.tensor([1.0, 0.1]))
            return x + self.table(torch.arange(3)) + torch.cat([angles.cos(), angles.sin()], 1)

    module = Positions().eval()
    counts = agree(module, (torch.randn(3, 4),), (torch.full((3, 4), math.nan),), folds=True)
    assert counts["constants"] > 4
    _, simple = programs(module, (torch.randn(3, 4),))
    assert ops(simple) == ["aten.add.Tensor", "aten.add.Tensor"]
    # The table isn't read any more.
    assert not simple.decision.programs["forward"].state_dict


def test_what_is_computed_twice_is_computed_once() -> None:
    counts = agree(Function(lambda x: (x.exp() * x, x.exp() + x)), (EDGES,))
    assert counts == {"duplicates": 1}
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
    class Attention(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    x = torch.randn(1, 2, 4, 8)
    masks = [torch.rand(4, 4) < 0.5, torch.zeros(4, 4, dtype=torch.bool)]
    poisoned = x.clone()
    poisoned[0, 0, 1, 3] = math.nan
    huge = x * 1e30
    calls = [(value, mask) for value in (x, poisoned, huge) for mask in masks]
    counts = agree(Attention(), *calls)
    assert counts["masks"] == 2
    _, simple = programs(Attention(), calls[0])
    assert not {"aten.logical_not.default", "aten.full_like.default"} & set(ops(simple))


def test_a_dynamic_size_is_not_taken_for_the_examples() -> None:
    rows = Dim("rows", min=1, max=8)
    shapes = {"inputs": ({0: rows},)}
    function = Function(
        lambda x: (x.expand(x.shape[0], 3).clone() * 2.0).view(-1, 3) + torch.arange(3)
    )
    calls = [(torch.randn(size, 3),) for size in (3, 1, 8)]
    assert agree(function, *calls, dynamic_shapes=shapes)


def test_what_a_method_writes_is_not_a_constant() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.ones(3))
            self.register_buffer("scale", torch.full((3,), 2.0))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            old = self.count.clone()
            self.count.mul_(self.scale.exp()).clamp_(max=1e6)
            return old * x, self.count.clone()

    calls = [(torch.full((3,), float(step)),) for step in range(4)]
    assert agree(Counter(), *calls)["constants"] == 1


def test_chance_is_not_a_constant_and_not_computed_once() -> None:
    module = Function(lambda x: x + torch.rand(3) - torch.rand(3))
    with torch.no_grad():
        exported = torch.export.export(module, (torch.ones(3),))
    plan = Lowerer([]).plan(exported)
    assert plan["forward"].simplified == ()
    assert [e.op for e in plan["forward"].ledger].count("aten.rand.default") == 2


def test_a_large_result_stays_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Function(lambda x: x + torch.arange(64.0).cos())
    assert agree(module, (torch.ones(64),), folds=True) == {"constants": 2}
    monkeypatch.setattr(folding, "MOST_BYTES", 255)
    assert agree(module, (torch.ones(64),)) == {}


def test_a_weight_that_is_read_elsewhere_is_not_stored_twice() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 32))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            hidden = nn.functional.embedding(tokens, self.weight)
            return hidden @ self.weight.permute(1, 0)

    with torch.no_grad():
        lowered = Lowerer([]).lower(Tied(), (torch.arange(4),))
    constants = lowered.decision.programs["forward"].state_dict
    assert [tuple(value.shape) for value in constants.values()] == [(64, 32)]
    assert lowered.plan["forward"].simplified == ()


def test_results_stay_tensors_of_their_own() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * x
        return y, y.clone(), x.clone(), torch.arange(3.0), torch.arange(3.0)

    agree(Function(function), (torch.arange(3.0),))


def test_channels_last_values_are_not_given_numbers_of_another_layout() -> None:
    example = torch.randn(1, 3, 2, 2).to(memory_format=torch.channels_last)
    plan = Lowerer([]).plan(Function(lambda x: x * 2.0 + 0.5), (example,))
    assert "scalars" not in dict(plan["forward"].simplified)


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
    assert Lowerer([]).plan(edge)["forward"].simplified == ()


def test_bert_has_fewer_delegates_and_kernels() -> None:
    module, inputs = nets.bert()
    plain, simple = (
        Lowerer(["cpu"], simplify=simplify).plan(module, inputs)["forward"]
        for simplify in (False, True)
    )
    assert len(simple.partitions) < len(plain.partitions)
    assert 2 * len(simple.fallback) < len(plain.fallback)
