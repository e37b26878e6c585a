"""Pins: how they read, what they match, and that no plugin has what is pinned to another.

What comes of them is in cases/pins.txt and cases/pins_whole.txt.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models import nets
from support.models.small import HEADS, PAIR, AddMul, Attention
from support.toys import Takes
from support.toys.runtime import assert_agrees
from torch import nn

from etdev import Lowerer, Pin, Plan, registry
from etdev.errors import PinError, RegistryError
from etdev.graph.method import run_order
from etdev.planner.planner import Planner
from etdev.schema.options import Options
from etdev.schema.pins import matches, pins

SDPA = torch.ops.aten.scaled_dot_product_attention.default


def takes(name, *ops, **options):
    return Takes(name, ops or ("add.Tensor", "mul.Tensor"), **options)


# Values


@pytest.mark.parametrize(
    "text",
    [
        "module=encoder.layer.0.*:plugin=cpu",
        "op=aten.add.*:node=aten_add_tensor_[0-3]:plugin=portable",
        "module=a:op=b:node=c:method=forward:plugin=trt",
    ],
)
def test_a_pin_reads_as_it_is_written(text):
    assert str(Pin.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("op", "can't read 'op'"),
        ("op=a", "can't read 'op=a'"),
        ("op=a:plugin=", "can't read 'op=a:plugin='"),
        ("modul=a:plugin=cpu", "can't read 'modul=a:plugin=cpu'"),
        ("plugin=cpu", "can't read 'plugin=cpu'"),
    ],
)  # fmt: skip
def test_a_pin_that_makes_no_sense_is_refused(text, message):
    with pytest.raises(PinError) as caught:
        Pin.parse(text)
    assert str(caught.value) == f"pin: {message}; write module=encoder.layer.0:plugin=cpu"


def test_a_pin_needs_a_criterion():
    with pytest.raises(PinError, match=r"^pin: has none of module, op, node; write module = "):
        Pin("cpu")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("op=a:plugin=cpu", "pins: 'op=a:plugin=cpu' is not a list; write pins=[Pin(...)]"),
        ([Pin("cpu", op="a"), 3], "pins[1]: is 3; it must be a table"),
        ([{"op": "a"}], "pins[0].plugin: required field missing"),
    ],
)  # fmt: skip
def test_pins_that_make_no_sense_are_refused_with_their_position(value, message):
    with pytest.raises(PinError) as caught:
        pins(value)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("pin", "expected"),
    [
        (Pin("cpu", module="layer.0"), True),
        (Pin("cpu", module="layer"), True),
        (Pin("cpu", module="layer.0.*"), True),
        (Pin("cpu", module="layer.?"), True),
        (Pin("cpu", module="0.*"), False),
        (Pin("cpu", module="Layer.0"), False),
        (Pin("cpu", op="aten._softmax.*"), True),
        (Pin("cpu", op="aten.softmax.int"), True),
        (Pin("cpu", op="aten.softmax"), False),
        (Pin("cpu", node="aten__softmax_default"), True),
        (Pin("cpu", node="aten__softmax_default_[0-9]"), False),
        (Pin("cpu", op="*softmax*", node="aten_add*"), False),
        (Pin("cpu", op="*softmax*", module="layer.0.self"), True),
    ],
)
def test_all_criteria_of_a_pin_must_hold(pin, expected):
    ops = ["aten._softmax.default", "aten.softmax.int"]
    modules = ["", "layer", "layer.0", "layer.0.self"]
    assert matches(pin, "aten__softmax_default", ops, modules) == expected


# Who gets what


def test_nobody_takes_what_is_pinned_to_portable_and_the_result_is_the_same():
    lowerer = Lowerer([takes("a"), takes("b")], pins=[Pin("portable", op="aten.mul.Tensor")])
    lowered = lowerer.lower(AddMul(), PAIR)
    entry = lowered.plan["forward"].ledger["aten_mul_tensor"]
    assert (entry.owner, entry.pin_kept) == ("portable", True)
    assert [verdict.code for verdict in entry.verdicts] == ["pin", "pin", "claimed"]
    assert_agrees(lowered, AddMul(), PAIR)


def test_a_plan_with_pins_read_back_from_json_is_equal():
    plan = Lowerer([takes("a")], pins=[Pin("a", op="aten.mul.*")]).plan(AddMul(), PAIR)
    assert Plan.from_json(plan.to_json()) == plan


# Pins that can't be


def test_a_registry_pin_to_an_unknown_plugin_is_refused(tmp_path):
    text = '[plugins.trt]\noptional = true\n[[pin]]\nop = "*"\nplugin = "tr"\n'
    table = registry.parse(text, tmp_path / "registry.toml")
    with pytest.raises(RegistryError) as caught:
        Lowerer([takes("a")], registry=table)
    assert str(caught.value) == (
        f"{tmp_path / 'registry.toml'}: pin op=*:plugin=tr names an unknown plugin; "
        "known are a, portable, trt"
    )


@pytest.mark.slice("0")
@pytest.mark.parametrize("order", [0, 1])
def test_an_op_pinned_away_from_who_wants_it_whole_is_not_kept_whole(order):
    keeper = takes("keeper", "attention.default", whole=(SDPA,))
    plugins = [takes("plain", "bmm.default", "add.Tensor")]
    plugins.insert(order, keeper)
    pin = Pin("plain", op="aten.scaled_dot_product_attention.*")
    lowered = Lowerer(plugins, pins=[pin]).lower(Attention(), HEADS)
    pinned = [entry for entry in lowered.plan["forward"].ledger if entry.pin]
    assert {entry.op: entry.owner for entry in pinned}["aten.bmm.default"] == "plain"
    assert {entry.owner for entry in pinned} == {"plain", "portable"}
    assert not any(str(SDPA) in ops for ops in keeper.shown)
    assert_agrees(lowered, Attention(), HEADS)


# Any pins


class Inner(nn.Module):
    def forward(self, x):
        return nn.functional.silu(x + 1.0) * x


class Several(nn.Module):
    """An op that is kept whole, one with several outputs that are used, and one of which one is."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm = Inner(), nn.LayerNorm(4)

    def forward(self, x):
        first, second = torch.split(self.norm(self.inner(x + 1.0)) * x, 1)
        return first + second * first + first


SILU = torch.ops.aten.silu.default
PLUGINS = (
    takes("keeper", "silu.default", "mul.Tensor", "add.Tensor", whole=(SILU,)),
    takes("middle", "sigmoid.default", "mul.Tensor", "layer_norm.default"),
    takes("last", "add.Tensor", "split_copy.Tensor", "split_with_sizes_copy.default", merge=False),
)


@pytest.fixture(scope="module")
def several():
    """Plans the program under pins; it is converted, and what was kept whole decomposed, once."""
    lowerer = Lowerer(PLUGINS)
    known = lowerer.decide(torch.export.export(Several(), PAIR[:1]))
    edge, whole, expander = known.converted, known.whole, known.conversion.expander

    def planned(chosen):
        planner = Planner(lowerer.plugins, Options(pins=tuple(chosen)), expander)
        return planner.plan(edge["forward"], "forward", whole["forward"])

    return planned


ANY_PIN = st.builds(
    Pin,
    st.sampled_from(["keeper", "middle", "last", "portable"]),
    module=st.sampled_from([None, "inner", "norm", "*"]),
    op=st.sampled_from(["*", "aten.add.*", "aten.mul.*", "aten.sig*", "aten.silu*", "*norm*"]),
    node=st.sampled_from([None, "*_tensor", "*_default", "*silu*", "*_1"]),
)


def assert_can_run(graph, partitions):
    """Node by node and partition by partition, each after all that it reads."""
    nodes = {node.name: node for node in graph.nodes}
    ran = {node.name for node in graph.find_nodes(op="placeholder")}
    for unit in run_order(graph, partitions):
        inside = partitions[unit].nodes if isinstance(unit, int) else [unit.name]
        reads = {source.name for name in inside for source in nodes[name].all_input_nodes}
        assert reads - set(inside) <= ran
        ran.update(inside)


@settings(max_examples=40, deadline=None)
@given(st.lists(ANY_PIN, max_size=4))
def test_whatever_is_pinned_no_other_plugin_has_and_partitions_stay_convex(several, chosen):
    plan, program = several(chosen)
    assert all(e.owner in ("portable", e.pin.plugin) for e in plan.ledger if e.pin)
    covered = [name for part in plan.partitions for name in part.nodes]
    assert len(covered) == len(set(covered))
    assert_can_run(program.graph, plan.partitions)
    assert bool(chosen) or several(())[0] == plan


# XNNPACK


@pytest.mark.suite
def test_a_layer_pinned_to_portable_gives_eagers_numbers():
    module, inputs = nets.bert()
    pin = Pin("portable", module="model.encoder.layer.0")
    lowered = Lowerer(["cpu"], pins=[pin]).lower(module, inputs)
    for entry in lowered.plan["forward"].ledger:
        inside = f"{entry.module}.".startswith("model.encoder.layer.0.")
        assert (entry.pin == pin) == inside
        assert entry.owner == "portable" or not inside
    assert any(entry.owner == "cpu" for entry in lowered.plan["forward"].ledger)
    assert_agrees(lowered, module, inputs, tolerance=1e-4)
