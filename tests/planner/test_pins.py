"""Pins: nodes that one plugin may have and no other, in whatever form they are shown."""

import pytest
import torch
from executorch.exir import EdgeCompileConfig
from executorch.runtime import Runtime
from hypothesis import given, settings
from hypothesis import strategies as st
from models import nets
from torch import nn
from toys import Takes

from etdev import Claim, EtdevWarning, Group, Lowerer, Pin, Plan, hookimpl, registry
from etdev.edge.conversion import Conversion
from etdev.edge.keep_whole import take_marks
from etdev.errors import PinError, PluginError, RegistryError
from etdev.graph.expand import Expander
from etdev.graph.order import run_order
from etdev.planner.planner import Planner
from etdev.planner.rules import Rules
from etdev.schema.ledger import Verdict
from etdev.schema.pins import pins

SDPA = torch.ops.aten.scaled_dot_product_attention.default
WRITE = '; write module = "encoder.layer.0" with plugin = "cpu"'
PAIR = (torch.randn(2, 4), torch.randn(2, 4))
HEADS = (torch.randn(1, 2, 4, 8),)


class AddMul(nn.Module):
    def forward(self, x, y):
        return (x + y) * y + x


class Inner(nn.Module):
    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x + 1, x, x) * 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x) + 1


def takes(name, *ops, **options):
    return Takes(name, ops or ("add.Tensor", "mul.Tensor"), **options)


def owners(plan):
    return {entry.node: entry.owner for entry in plan.ledger}


def execute(lowered, inputs):
    program = Runtime.get().load_program(lowered.to_executorch().buffer)
    return program.load_method("forward").execute(list(inputs))[0]


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
        ("op", "pin: can't read 'op' in 'op'; write module=encoder.layer.0:plugin=cpu"),
        ("op=a:op=b:plugin=c",
         "pin: can't read 'op=b' in 'op=a:op=b:plugin=c'; "
         "write module=encoder.layer.0:plugin=cpu"),
        ("op=a", "pin: names no plugin" + WRITE),
        ("op=a:plugin=", "pin: plugin is '', which is not a name" + WRITE),
        ("plugin=cpu", "pin: has none of module, op, node" + WRITE),
        ("modul=a:plugin=cpu", "pin: modul is an unknown key; did you mean module?"),
        ("op=[a:plugin=cpu", "pin: op is '[a', whose [ is never closed" + WRITE),
    ],
)  # fmt: skip
def test_a_pin_that_makes_no_sense_is_refused(text, message):
    with pytest.raises(PinError) as caught:
        Pin.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("op=a:plugin=cpu", "pins: 'op=a:plugin=cpu' is not a list; write pins=[Pin(...)]"),
        ([Pin("cpu", op="a"), 3], "pins[1]: is 3, which is not a pin" + WRITE),
        ([{"plugin": "cpu", "op": 3}], "pins[0]: op is 3, which is not a glob" + WRITE),
        ([{"plugin": "cpu", "op": "a", "method": 3}],
         "pins[0]: method is 3, which is not a name" + WRITE),
    ],
)  # fmt: skip
def test_pins_that_make_no_sense_are_refused_with_their_position(value, message):
    with pytest.raises(PinError) as caught:
        pins(value)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("pin", "matches"),
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
def test_all_criteria_of_a_pin_must_hold(pin, matches):
    ops = ["aten._softmax.default", "aten.softmax.int"]
    modules = ["", "layer", "layer.0", "layer.0.self"]
    assert pin.matches("aten__softmax_default", ops, modules) == matches


# Who gets what


def test_a_pinned_node_goes_to_its_plugin_and_no_earlier_one():
    pin = Pin("late", node="aten_mul_tensor")
    plan = Lowerer([takes("early"), takes("late")], pins=[pin]).plan(AddMul(), PAIR)["forward"]
    assert owners(plan) == {
        "aten_add_tensor": "early",
        "aten_mul_tensor": "late",
        "aten_add_tensor_1": "early",
    }
    assert plan.ledger["aten_mul_tensor"].pin == pin
    assert plan.ledger["aten_mul_tensor"].verdicts == (
        Verdict("early", "pin", "pinned by node=aten_mul_tensor:plugin=late"),
        Verdict("late", "claimed"),
    )


def test_a_group_with_a_node_pinned_elsewhere_is_lost_whole():
    class Pattern:
        name = "pattern"

        @hookimpl
        def claim_nodes(self, program):
            nodes = [n for n in program.graph.nodes if n.op == "call_function"]
            return Claim("XnnpackBackend", [Group(nodes, "all three")])

    lowerer = Lowerer([Pattern(), takes("late")], pins=[Pin("late", op="aten.mul.*")])
    plan = lowerer.plan(AddMul(), PAIR)["forward"]
    assert set(owners(plan).values()) == {"late"}
    assert plan.ledger["aten_add_tensor"].verdicts[0] == Verdict(
        "pattern", "pin", "aten_mul_tensor: pinned by op=aten.mul.*:plugin=late"
    )


def test_nobody_takes_what_is_pinned_to_portable_and_the_result_is_the_same():
    lowerer = Lowerer([takes("a"), takes("b")], pins=[Pin("portable", op="aten.mul.Tensor")])
    lowered = lowerer.lower(AddMul(), PAIR)
    entry = lowered.plan["forward"].ledger["aten_mul_tensor"]
    assert (entry.owner, entry.pin_kept) == (None, True)
    assert [verdict.code for verdict in entry.verdicts] == ["pin", "pin"]
    torch.testing.assert_close(execute(lowered, PAIR), AddMul()(*PAIR))


def test_a_node_that_its_plugin_does_not_take_is_left_to_portable_kernels():
    lowerer = Lowerer([takes("a"), takes("b", "add.Tensor")], pins=[Pin("b", op="*mul*")])
    entry = lowerer.plan(AddMul(), PAIR)["forward"].ledger["aten_mul_tensor"]
    assert (entry.owner, entry.pin_kept) == (None, False)
    assert entry.verdicts == (
        Verdict("a", "pin", "pinned by op=*mul*:plugin=b"),
        Verdict("b", "op", "not mine"),
    )


def test_strict_refuses_a_pin_that_its_plugin_does_not_keep():
    plugins = [takes("a"), takes("b", "add.Tensor")]
    lowerer = Lowerer(plugins, pins=[{"module": "*", "plugin": "b"}], strict=True)
    with pytest.raises(PinError) as caught:
        lowerer.plan(AddMul(), PAIR)
    assert str(caught.value) == (
        "pin module=*:plugin=b: is not kept for forward/aten_mul_tensor (aten.mul.Tensor; "
        "a: pinned by module=*:plugin=b, b: not mine); "
        "narrow it, or leave these to portable kernels without strict"
    )


def test_the_first_pin_that_matches_counts():
    chosen = [Pin("b", node="aten_add_tensor"), Pin("portable", op="aten.add.*")]
    plan = Lowerer([takes("a"), takes("b")], pins=chosen).plan(AddMul(), PAIR)["forward"]
    assert owners(plan) == {
        "aten_add_tensor": "b",
        "aten_mul_tensor": "a",
        "aten_add_tensor_1": None,
    }


def test_a_pin_of_the_lowerer_precedes_the_registrys(tmp_path):
    text = '[[pin]]\nop = "aten.mul.*"\nplugin = "b"\n[[pin]]\nop = "aten.add.*"\nplugin = "b"\n'
    table = registry.parse(text, tmp_path / "registry.toml")
    chosen = [Pin("portable", op="aten.mul.*")]
    # Strict: the registry's first pin matches, though another counts.
    lowerer = Lowerer([takes("a"), takes("b")], registry=table, pins=chosen, strict=True)
    plan = lowerer.plan(AddMul(), PAIR)["forward"]
    assert set(owners(plan).items()) == {
        ("aten_add_tensor", "b"),
        ("aten_mul_tensor", None),
        ("aten_add_tensor_1", "b"),
    }


def test_a_pin_can_be_for_one_method():
    lowerer = Lowerer([takes("a")], pins=[Pin("portable", op="aten.mul.*", method="one")])
    plan = lowerer.plan({"one": (AddMul(), PAIR), "two": (AddMul(), PAIR)})
    mul = "aten_mul_tensor"
    assert (plan["one"].owner(mul), plan["two"].owner(mul)) == (None, "a")


def test_a_plugin_is_told_what_is_pinned_to_others():
    told = []

    class Asks:
        name = "asks"

        @hookimpl
        def claim_nodes(self, taken):
            told.append(dict(taken))

    chosen = [Pin("portable", op="aten.mul.*"), Pin("asks", node="aten_add_tensor")]
    Lowerer([Asks()], pins=chosen).plan(AddMul(), PAIR)
    assert told == [{"aten_mul_tensor": "portable"}]


def test_a_plan_with_pins_read_back_from_json_is_equal():
    plan = Lowerer([takes("a")], pins=[Pin("a", op="aten.mul.*")]).plan(AddMul(), PAIR)
    assert Plan.from_json(plan.to_json()) == plan


# Pins that can't be


def test_a_pin_to_a_plugin_that_is_not_asked_is_refused():
    with pytest.raises(PinError) as caught:
        Lowerer([takes("a")], pins=[Pin("b", op="*")])
    assert str(caught.value) == "pin op=*:plugin=b: b is not asked; the plugins are a"


def test_a_registry_pin_to_an_unknown_plugin_is_refused(tmp_path):
    text = '[plugins.trt]\noptional = true\n[[pin]]\nop = "*"\nplugin = "tr"\n'
    table = registry.parse(text, tmp_path / "registry.toml")
    with pytest.raises(RegistryError) as caught:
        Lowerer([takes("a")], registry=table)
    assert str(caught.value) == (
        f"{tmp_path / 'registry.toml'}: pin op=*:plugin=tr names an unknown plugin; "
        "known are a, trt, portable"
    )


def test_a_registry_pin_to_a_plugin_that_is_missing_here_holds_with_a_warning(tmp_path):
    text = '[plugins.trt]\noptional = true\n[[pin]]\nop = "aten.mul.*"\nplugin = "trt"\n'
    table = registry.parse(text, tmp_path / "registry.toml")
    with pytest.warns(EtdevWarning) as caught:
        lowerer = Lowerer([takes("a")], registry=table)
    assert [str(warning.message) for warning in caught] == [
        "pin op=aten.mul.*:plugin=trt: trt is not asked, so that its nodes are left to portable "
        "kernels; install it or remove the pin"
    ]
    assert lowerer.plan(AddMul(), PAIR)["forward"].owner("aten_mul_tensor") is None


UNMATCHED = "pin op=aten.sub.*:plugin=a: matches no node; etdev plan --json lists them all"


def test_a_pin_that_matches_nothing_is_a_warning():
    lowerer = Lowerer([takes("a")], pins=[Pin("a", op="aten.sub.*"), Pin("a", op="aten.mul.*")])
    with pytest.warns(EtdevWarning) as caught:
        lowerer.plan(AddMul(), PAIR)
    ours = [str(warning.message) for warning in caught if warning.category is EtdevWarning]
    assert ours == [UNMATCHED]


def test_strict_refuses_a_pin_that_matches_nothing():
    lowerer = Lowerer([takes("a")], pins=[Pin("a", op="aten.sub.*")], strict=True)
    with pytest.raises(PinError) as caught:
        lowerer.plan(AddMul(), PAIR)
    assert str(caught.value) == UNMATCHED


def test_no_plugin_is_called_portable():
    with pytest.raises(PluginError) as caught:
        Lowerer([takes("portable")])
    assert (
        str(caught.value)
        == "portable: is reserved for nodes left to portable kernels; rename the plugin"
    )


# Ops that are kept whole


def keeper(name="keeper"):
    return takes(name, "attention.default", whole=(SDPA,))


def plain():
    return takes("plain", "bmm.default", "add.Tensor")


def is_part(entry):
    return entry.node.startswith("aten_scaled_dot_product_attention_default__")


WAYS = [
    {"op": "aten.scaled_dot_product_attention.*"},
    {"node": "aten_scaled_dot_product_attention_default"},
    {"module": "inner", "op": "aten.scaled*"},
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", [0, 1])
def test_an_op_pinned_away_from_who_wants_it_whole_is_not_kept_whole(way, order):
    wants_it, plugins = keeper(), [plain()]
    plugins.insert(order, wants_it)
    lowered = Lowerer(plugins, pins=[Pin("plain", **way)]).lower(Attention(), HEADS)
    ledger = lowered.plan["forward"].ledger
    parts = [entry for entry in ledger if is_part(entry)]
    assert {entry.op: entry.owner for entry in parts}["aten.bmm.default"] == "plain"
    assert {entry.owner for entry in parts} == {"plain", None}
    assert all(entry.pin == Pin("plain", **way) for entry in parts)
    assert not any(str(SDPA) in ops for ops in wants_it.shown)
    torch.testing.assert_close(execute(lowered, HEADS), Attention()(*HEADS), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_the_parts_of_an_op_pinned_to_portable_are_left_to_portable_kernels(way):
    lowerer = Lowerer([plain(), keeper()], pins=[Pin("portable", **way)])
    ledger = lowerer.plan(Attention(), HEADS)["forward"].ledger
    parts = [entry for entry in ledger if is_part(entry)]
    assert len(parts) > 5
    assert {entry.owner for entry in parts} == {None}


def test_an_op_pinned_to_who_wants_it_whole_stays_whole():
    lowerer = Lowerer([plain(), keeper()], pins=[Pin("keeper", op="aten.scaled*")])
    plan = lowerer.plan(Attention(), HEADS)["forward"]
    assert plan.owner("aten_scaled_dot_product_attention_default") == "keeper"
    entry = plan.ledger["aten_scaled_dot_product_attention_default"]
    assert entry.verdicts[0] == Verdict("plain", "pin", "pinned by op=aten.scaled*:plugin=keeper")


def test_the_parts_of_an_op_that_nobody_took_whole_are_pinned_as_it_was():
    picky = takes("picky", "none", whole=(SDPA,))
    pin = Pin("picky", node="aten_scaled_dot_product_attention_default")
    ledger = Lowerer([plain(), picky], pins=[pin]).plan(Attention(), HEADS)["forward"].ledger
    parts = [entry for entry in ledger if is_part(entry)]
    assert {entry.owner for entry in parts} == {None}
    assert {entry.pin for entry in parts} == {pin}


def test_an_op_is_pinned_by_what_it_was_in_the_exported_program():
    pin = Pin("portable", op="aten.scaled_dot_product_attention.default")
    ledger = Lowerer([plain()], pins=[pin]).plan(Attention(), HEADS)["forward"].ledger
    pinned = [entry.op for entry in ledger if entry.pin]
    assert "aten.bmm.default" in pinned
    assert "aten._softmax.default" in pinned
    assert "aten.add.Tensor" not in pinned


# Any pins


class Several(nn.Module):
    """Attention between sums, and an op with several outputs."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm = Inner(), nn.LayerNorm(8)

    def forward(self, x):
        first, second = torch.split(self.norm(self.inner(x + 1)) * x, 2, dim=2)
        return first + second * 2 + 1


PLUGINS = (
    takes("keeper", "attention.default", "mul.Tensor", "add.Tensor", whole=(SDPA,)),
    takes("middle", "bmm.default", "mul.Tensor", "layer_norm.default"),
    takes("last", "add.Tensor", "split_copy.Tensor", "split_with_sizes_copy.default", merge=False),
)


@pytest.fixture(scope="module")
def several():
    """The program in the edge dialect, with what was kept whole for whom."""
    lowerer = Lowerer(PLUGINS)
    program = torch.export.export(Several(), HEADS)
    conversion = Conversion(lowerer.plugins, EdgeCompileConfig(), Expander())
    edge = conversion.to_edge({"forward": program}).exported_program()
    return lowerer, edge, take_marks(edge)


ANY_PIN = st.builds(
    Pin,
    st.sampled_from(["keeper", "middle", "last", "portable"]),
    module=st.sampled_from([None, "inner", "norm", "*"]),
    op=st.sampled_from(["*", "aten.add.*", "aten.mul.*", "aten.bmm.*", "aten.scaled*", "*norm*"]),
    node=st.sampled_from([None, "*_tensor", "*_default", "*attention*", "*_1"]),
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
    lowerer, edge, whole = several
    planner = Planner(lowerer.plugins, Rules(pins=tuple(chosen)))
    plan, program = planner.plan(edge, "forward", whole)
    assert all(entry.owner in (None, entry.pin.plugin) for entry in plan.ledger if entry.pin)
    covered = [name for part in plan.partitions for name in part.nodes]
    assert len(covered) == len(set(covered))
    assert_can_run(program.graph, plan.partitions)
    free = Planner(lowerer.plugins)
    assert bool(chosen) or free.plan(edge, "forward", whole)[0] == plan


# XNNPACK


def test_a_layer_pinned_to_portable_gives_eagers_numbers():
    module, inputs = nets.bert()
    pin = Pin("portable", module="model.encoder.layer.0")
    lowered = Lowerer(["cpu"], pins=[pin]).lower(module, inputs)
    for entry in lowered.plan["forward"].ledger:
        inside = f"{entry.module}.".startswith("model.encoder.layer.0.")
        assert (entry.pin == pin) == inside
        assert entry.owner is None or not inside
    assert any(entry.owner == "cpu" for entry in lowered.plan["forward"].ledger)
    torch.testing.assert_close(execute(lowered, inputs), module(*inputs), atol=1e-4, rtol=1e-3)


def test_xnnpack_takes_a_layer_without_its_pinned_activation():
    module, inputs = nets.mlp()
    lowered = Lowerer(["cpu"], pins=[Pin("portable", module="1")]).lower(module, inputs)
    plan = lowered.plan["forward"]
    assert plan.owner("aten_linear_default") == "cpu"
    assert plan.owner("aten_relu_default") is None
    torch.testing.assert_close(execute(lowered, inputs), module(*inputs), atol=1e-5, rtol=1e-4)
