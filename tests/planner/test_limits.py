"""Limits: partitions that are too small or too many are given up, and others get their nodes."""

import pytest
import torch
from executorch.runtime import Runtime
from hypothesis import given
from hypothesis import strategies as st
from models import nets
from torch import nn
from toys import Takes

from etdev import Limits, Lowerer, registry
from etdev.errors import PluginError
from etdev.schema.ledger import Verdict

SDPA = torch.ops.aten.scaled_dot_product_attention.default
COUNT = "it must be a whole number of at least 1"


class Chain(nn.Module):
    """Sums in runs of one, three, two and two, with products between them."""

    def forward(self, x):
        y = x + 1.0
        y = ((y * 2.0) + x + x) + x
        y = (y * 2.0) + x + x
        return (y * 2.0) + x + 1.0


INPUTS = (torch.randn(2, 4),)
ADDS = ("add.Tensor", "add.Scalar")
MANY = (
    "exceeds max_partitions = 1: the plugin's other partitions are larger, or equally large and "
    "earlier"
)
SMALL = "its partition has 1 nodes, fewer than min_nodes = 2"


def sizes(plan, plugin):
    return [len(part.nodes) for part in plan.partitions if part.plugin == plugin]


def planned(limits, *plugins):
    return Lowerer(plugins or [Takes("a", ADDS)], limits={"a": limits}).plan(Chain(), INPUTS)[
        "forward"
    ]


def execute(lowered, inputs):
    program = Runtime.get().load_program(lowered.to_executorch().buffer)
    return program.load_method("forward").execute(list(inputs))[0]


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({}, [1, 3, 2, 2]),
        ({"min_nodes": 1}, [1, 3, 2, 2]),
        ({"min_nodes": 2}, [3, 2, 2]),
        ({"min_nodes": 4}, []),
        ({"max_partitions": 1}, [3]),
        # Of the two of equal size the first in the graph.
        ({"max_partitions": 2}, [3, 2]),
        ({"max_partitions": 9}, [1, 3, 2, 2]),
        (Limits(min_nodes=2, max_partitions=3), [3, 2, 2]),
        (Limits(min_nodes=3, max_partitions=2), [3]),
    ],
)
def test_small_and_surplus_partitions_are_given_up(limits, left):
    plan = planned(limits)
    assert sizes(plan, "a") == left
    assert [part.name for part in plan.partitions] == [f"a_{i}" for i in range(len(left))]
    assert plan.ledger.owned().get("a", 0) == sum(left)


def test_the_largest_that_is_left_is_the_first_and_was_split_from_none():
    assert [part.split_by for part in planned({"max_partitions": 1}).partitions] == [None]


def test_the_ledger_says_what_was_given_up_and_why():
    ledger = planned({"min_nodes": 2, "max_partitions": 1}).ledger
    said = {entry.node: entry.verdicts[0] for entry in ledger if "add" in entry.op}
    assert list(said.values()) == [
        Verdict("a", "min_nodes", SMALL),
        *[Verdict("a", "claimed")] * 3,
        *[Verdict("a", "max_partitions", MANY)] * 4,
    ]


def test_later_plugins_get_what_was_given_up():
    plan = planned({"min_nodes": 3}, Takes("a", ADDS), Takes("b", (*ADDS, "mul.Tensor")))
    assert sizes(plan, "a") == [3]
    assert plan.ledger.owned() == {"b": 8, "a": 3}
    assert plan.ledger["aten_add_tensor"].verdicts == (
        Verdict("a", "min_nodes", "its partition has 1 nodes, fewer than min_nodes = 3"),
        Verdict("b", "claimed"),
    )


def test_getitems_are_no_nodes_of_a_partition():
    class Halves(nn.Module):
        def forward(self, x):
            first, second = torch.split(x, 2)
            return first * second

    splits = Takes("a", ("split_copy.Tensor", "split_with_sizes_copy.default"))
    for least, partitions in ((1, 1), (2, 0)):
        lowerer = Lowerer([splits], limits={"a": {"min_nodes": least}})
        plan = lowerer.plan(Halves(), (torch.randn(4, 2),))["forward"]
        assert [len(part.nodes) for part in plan.partitions] == [3] * partitions


@given(
    st.lists(st.integers(1, 6), max_size=8),
    st.none() | st.integers(1, 6),
    st.none() | st.integers(1, 6),
)
def test_what_is_left_is_large_enough_and_no_larger_one_is_given_up(sizes, least, most):
    found = Limits(least, most).refusals([(size, at) for at, size in enumerate(sizes)])
    left = [(size, -at) for at, size in enumerate(sizes) if found[at] is None]
    surplus = [(s, -at) for at, s in enumerate(sizes) if found[at] and s >= (least or 1)]
    assert all(size >= (least or 1) for size, _ in left)
    assert len(left) <= (most or len(sizes))
    assert not surplus or (len(left) == most and max(surplus) < min(left))


# Ops that are kept whole


class Attention(nn.Module):
    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x + 1, x, x) * 2


HEADS = (torch.randn(1, 2, 4, 8),)
WHOLE = "aten_scaled_dot_product_attention_default"


def test_who_gives_up_a_whole_op_does_not_get_its_parts():
    greedy = Takes("a", ("attention.default", "bmm.default", "expand_copy.default"), whole=(SDPA,))
    lowerer = Lowerer([greedy], limits={"a": {"min_nodes": 2}})
    plan = lowerer.plan(Attention(), HEADS)["forward"]
    assert plan.partitions == ()
    parts = [entry for entry in plan.ledger if entry.op == "aten.bmm.default"]
    assert [entry.verdicts for entry in parts] == [(Verdict("a", "min_nodes", SMALL),)] * 2


@pytest.mark.parametrize(
    ("least", "text"),
    [(2, SMALL), (9, "its partition has 1 nodes, fewer than min_nodes = 9")],
)
def test_an_op_whose_parts_are_given_up_is_whole_for_who_wants_it(least, text):
    parts = Takes("a", ("bmm.default",))
    whole = Takes("b", ("attention.default",), whole=(SDPA,))
    lowerer = Lowerer([parts, whole], limits={"a": {"min_nodes": least}})
    plan = lowerer.plan(Attention(), HEADS)["forward"]
    assert {part.plugin: part.nodes for part in plan.partitions} == {"b": (WHOLE,)}
    assert plan.ledger[WHOLE].verdicts == (
        Verdict("a", "min_nodes", text),
        Verdict("b", "claimed"),
    )


class Shape(nn.Module):
    """A product of which a whole op reads the value, and its parts only the shape."""

    def forward(self, x):
        y = x * 2.0
        return y.new_zeros((3,)) + 1.0


def test_outputs_are_those_that_the_program_reads_in_the_end():
    op = torch.ops.aten.new_zeros.default
    parts = Takes("parts", ("mul.Tensor", "full.default"), merge=False)
    whole = Takes("whole", ("new_zeros.default",), whole=(op,))
    lowerer = Lowerer([parts, whole], limits={"parts": {"max_partitions": 1}})
    plan = lowerer.plan(Shape(), INPUTS)["forward"]
    outputs = {part.plugin: [t.name for t in part.outputs] for part in plan.partitions}
    assert outputs == {"parts": ["aten_mul_tensor"], "whole": ["aten_new_zeros_default"]}


# Where they are said


def test_a_limit_of_the_lowerer_wins_over_the_registrys_and_leaves_the_other(tmp_path):
    text = "[plugins.a]\noptional = true\nmin_nodes = 3\nmax_partitions = 2\n"
    table = registry.parse(text, tmp_path / "registry.toml")
    for limits, left in (({}, [3]), ({"a": {"min_nodes": 2}}, [3, 2])):
        lowerer = Lowerer([Takes("a", ADDS)], registry=table, limits=limits)
        assert sizes(lowerer.plan(Chain(), INPUTS)["forward"], "a") == left


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"a": {"min_nodes": 0}}, f"limits['a']: min_nodes is 0; {COUNT}"),
        ({"a": {"max_partitions": True}}, f"limits['a']: max_partitions is True; {COUNT}"),
        ({"a": {"min_nodes": "3"}}, f"limits['a']: min_nodes is '3'; {COUNT}"),
        (
            {"a": {"min": 3}},
            "limits['a']: min is an unknown key; valid are min_nodes, max_partitions",
        ),
        ({"a": 3}, "limits['a']: is 3, which is not a mapping of limits; write {'min_nodes': 3}"),
        (3, "limits: 3 is not a mapping; write {'cpu': {'min_nodes': 3}}"),
        ({"b": {"min_nodes": 3}}, "b: has limits but is not asked; the plugins are a"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits, message):
    with pytest.raises(PluginError) as caught:
        Lowerer([Takes("a", ADDS)], limits=limits)
    assert str(caught.value) == message


# XNNPACK


def test_xnnpack_within_limits_gives_eagers_numbers():
    module, inputs = nets.conv_net()
    free = Lowerer(["cpu"]).plan(module, inputs)["forward"]
    most = max(free.partitions, key=lambda part: len(part.nodes))
    lowered = Lowerer(["cpu"], limits={"cpu": {"max_partitions": 1}}).lower(module, inputs)
    assert [part.nodes for part in lowered.plan.partitions] == [most.nodes]
    torch.testing.assert_close(execute(lowered, inputs), module(*inputs), atol=1e-4, rtol=1e-3)


def test_a_layer_that_xnnpack_gives_up_runs_on_portable_kernels():
    module, inputs = nets.mlp()
    lowered = Lowerer(["cpu"], limits={"cpu": {"min_nodes": 2}}).lower(module, inputs)
    (part,) = lowered.plan.partitions
    assert part.nodes == ("aten_linear_default", "aten_relu_default")
    torch.testing.assert_close(execute(lowered, inputs), module(*inputs), atol=1e-5, rtol=1e-4)
