"""The built-in plugin: always there, always last, and any plugin may do what it does."""

import json
from pathlib import Path

import pytest
import torch
from attrs import define, field
from support.models.small import Function
from support.toys import Takes
from support.toys.runtime import assert_agrees

from etdev import Claim, Group, KeepWhole, Limits, Lowerer, Pin, Plan, hookimpl
from etdev.errors import LoweringError
from etdev.graph import aten_op, op_name, pieces_of
from etdev.graph.nodes import calls_in
from etdev.registry import parse

aten = torch.ops.aten
X = torch.randn(2, 4)


def registry(text):
    return parse(text, Path("registry.toml"))


def told(plan, node):
    entry = plan["forward"].ledger[node]
    return entry.owner, [(verdict.plugin, verdict.code) for verdict in entry.verdicts]


@pytest.mark.parametrize(
    ("text", "plugins"),
    [
        ("", None),
        ("", []),
        ("", ["cpu"]),
        ("", ["portable", "cpu"]),
        ("trusted = []", None),
        ('unlisted = "first"\n[plugins.cpu]', None),
        ("[plugins.portable]\n[plugins.cpu]", None),
        ("[plugins.portable]\noptional = true\n[plugins.cpu]", None),
    ],
)
@pytest.mark.parametrize("autoload", [True, False])
def test_it_is_asked_last_whatever_the_registry_says(text, plugins, autoload, monkeypatch):
    if not autoload:
        monkeypatch.setenv("ETDEV_DISABLE_PLUGIN_AUTOLOAD", "1")
    asked = [plugin.name for plugin in Lowerer(plugins, registry=registry(text)).plugins]
    assert asked.count("portable") == 1
    assert asked[-1] == "portable"


def test_a_registry_can_do_without_it():
    without = registry("portable = false")
    assert [plugin.name for plugin in Lowerer(["cpu"], registry=without).plugins] == ["cpu"]
    named = Lowerer(["cpu", "portable"], registry=without)
    assert [plugin.name for plugin in named.plugins] == ["cpu", "portable"]


def test_without_it_what_no_plugin_takes_is_refused_by_name():
    adder = Takes("adder", ("add.Tensor",))
    function = Function(lambda x: (x + 1).sin())
    lowerer = Lowerer([adder], registry=registry("portable = false"))
    with pytest.raises(LoweringError) as caught:
        lowerer.plan(function, (X,))
    op, _, told = caught.value.what.partition(" at ")
    assert op == "no plugin takes aten.sin.default"
    assert told.endswith(" (forward/aten_sin_default; adder: not mine)")
    everything = Takes("all", ("add.Tensor", "sin.default"))
    plan = Lowerer([everything], registry=registry("portable = false")).plan(function, (X,))
    assert plan["forward"].ledger.owned() == {"all": 2}


def test_it_takes_what_is_left_and_says_nothing_of_the_rest():
    plan = Lowerer([Takes("adder", ("add.Tensor",))]).plan(Function(lambda x: (x + 1).sin()), (X,))
    assert told(plan, "aten_add_tensor") == ("adder", [("adder", "claimed")])
    assert told(plan, "aten_sin_default") == (
        "portable",
        [("adder", "op"), ("portable", "claimed")],
    )
    assert plan["forward"].ledger.owned() == {"adder": 1, "portable": 1}
    assert plan["forward"].fallback == ("aten_sin_default",)


def test_pins_limits_and_devices_know_it():
    adder = Takes("adder", ("add.Tensor",))
    lowerer = Lowerer(
        [adder],
        pins=[Pin("portable", op="aten.add.*")],
        limits={"portable": Limits(min_nodes=9)},
        devices={"portable": "cuda:0"},
    )
    plan = lowerer.plan(Function(lambda x: x + 1), (X,))
    assert told(plan, "aten_add_tensor") == (
        "portable",
        [("adder", "pin"), ("portable", "claimed")],
    )
    assert plan["forward"].partitions == ()


def test_what_is_pinned_to_another_plugin_and_not_taken_is_its():
    keeper = Takes("keeper", ())
    plan = Lowerer([keeper], pins=[Pin("keeper", op="*")]).plan(Function(torch.sin), (X,))
    assert told(plan, "aten_sin_default") == (
        "portable",
        [("keeper", "op"), ("portable", "claimed")],
    )


def test_a_plan_of_an_earlier_version_has_no_owner_for_it():
    plan = Lowerer([], pins=[Pin("portable", op="*")]).plan(Function(torch.sin), (X,))
    data = json.loads(plan.to_json())
    (entry,) = data["methods"][0]["ledger"]["entries"]
    entry["owner"], entry["verdicts"] = None, []
    (before,) = Plan.from_json(json.dumps(data))["forward"].ledger
    assert (before.holder, before.falls_back, before.pin_kept) == ("portable", True, True)


# What any plugin may do


@define(eq=False)
class Writes:
    """Writes hardswish and sin in ops of its own choice, and takes some of those.

    Args:
        name: The plugin's name.
        whole: ATen ops to keep for `decompose`.
        takes: Endings of the ops that it takes.
        knows: Whether it knows how hardswish is written.
        asked: Ops that it was asked about.
    """

    name: str = "writer"
    whole: tuple = (aten.hardswish.default,)
    takes: tuple = ()
    knows: bool = True
    asked: list = field(factory=list)

    @hookimpl
    def keep_whole(self):
        return KeepWhole((), decomposes=self.whole)

    @hookimpl
    def claim_nodes(self, program):
        import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        return Claim(
            "XnnpackBackend", [Group([n]) for n in calls if op_name(n).endswith(self.takes)]
        )

    @hookimpl
    def decompose(self, node):
        self.asked.append(op_name(node))
        if self.knows and aten_op(node.target) is aten.hardswish.default:
            return lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1)
        return None


def test_a_plugin_writes_an_op_in_ops_that_it_takes():
    writer = Writes(takes=("mul.Tensor", "clamp.default"))
    function = Function(torch.nn.functional.hardswish)
    lowered = Lowerer([writer]).lower(function, (X,))
    ops = {entry.op: entry.owner for entry in lowered.plan["forward"].ledger}
    assert ops["aten.clamp.default"] == ops["aten.mul.Tensor"] == "writer"
    assert writer.asked.count("aten.hardswish.default") > 0
    assert_agrees(lowered, function, (X,), (X * 9,))


def test_the_first_plugin_that_knows_decomposes():
    ignorant, writer, late = Writes("ignorant", knows=False), Writes(), Writes("late")
    plan = Lowerer([ignorant, writer, late]).plan(Function(torch.nn.functional.hardswish), (X,))
    assert "aten.clamp.default" in {entry.op for entry in plan["forward"].ledger}
    assert ignorant.asked
    assert writer.asked
    assert late.asked == []


def test_what_no_plugin_decomposes_is_decomposed_as_without_them():
    function = Function(torch.nn.functional.hardswish)
    with_it, without = (
        [entry.op for entry in Lowerer(plugins).plan(function, (X,))["forward"].ledger]
        for plugins in ([Writes(knows=False)], [])
    )
    assert with_it == without


def test_an_op_in_a_branch_is_decomposed_too():
    def chosen(x):
        return torch.cond(x.sum() > 0, torch.nn.functional.hardswish, lambda x: x * 2, (x,))

    writer = Writes()
    lowered = Lowerer([writer]).lower(Function(chosen), (X,))
    assert "aten.hardswish.default" in writer.asked
    assert_agrees(lowered, Function(chosen), (X.abs(),), (-X.abs(),))


def test_a_linear_layer_in_a_branch_has_the_optimised_kernel():
    def chosen(x, weight, bias):
        layer = torch.nn.functional.linear
        return torch.cond(
            x.sum() > 0,
            lambda x: layer(x, weight, bias).relu(),
            # Its kernel doesn't take tensors of one dimension.
            lambda x: x * 2 + layer(x[0], weight),
            (x,),
        )

    module, weights = Function(chosen), (torch.randn(4, 4), torch.randn(4))
    calls = (X.abs(), *weights), (-X.abs(), *weights)
    for kernels, ops in (("optimized", {"linear", "mm"}), ("portable", {"addmm", "mm"})):
        options = f'[plugins.portable.options]\nkernels = "{kernels}"'
        lowered = Lowerer([], registry=registry(options)).lower(module, calls[0])
        found = {
            op_name(node) for node in calls_in(lowered.lowering.programs["forward"].graph_module)
        }
        products = {f"aten.{name}.default" for name in ("linear", "addmm", "mm")}
        assert found & products == {f"aten.{name}.default" for name in ops}
        assert_agrees(lowered, module, *calls)


@define(eq=False)
class Kernels:
    """Has kernels in the runtime, of which that of sin is wrong for some values."""

    name: str = "kernels"
    seen: list = field(factory=list)

    @hookimpl
    def claim_nodes(self, program):
        groups = {op: [] for op in ("aten.sin.default", "aten.cos.default")}
        for node in program.graph.nodes:
            if op_name(node) in groups:
                groups[op_name(node)].append(Group([node], "of large numbers"))
                self.seen += pieces_of(node)
        sines, cosines = groups.values()
        return [Claim(None, cosines), Claim(None, sines, last_resort=True)]


def test_a_claim_without_a_backend_stays_in_the_program():
    plan = Lowerer([Kernels()], limits={"kernels": {"min_nodes": 9}}).plan(
        Function(torch.cos), (X,)
    )
    assert plan["forward"].partitions == ()
    assert plan["forward"].fallback == ("aten_cos_default",)
    assert plan["forward"].ledger.owned() == {"kernels": 1}


def test_a_last_resort_comes_after_plugins_and_decompositions():
    plugins = [Kernels(), Takes("sines", ("sin.default",))]
    assert Lowerer(plugins).plan(Function(torch.sin), (X,))["forward"].owner(
        "aten_sin_default"
    ) == ("sines")
    without = registry("portable = false")
    plan = Lowerer([Kernels()], registry=without).plan(Function(torch.sin), (X,))
    entry = plan["forward"].ledger["aten_sin_default"]
    assert (entry.owner, entry.caveat) == ("kernels", "of large numbers")


def test_a_decomposition_that_can_not_express_its_arguments_leaves_the_op():
    def unable(x):
        raise NotImplementedError

    class Unable(Writes):
        @hookimpl
        def decompose(self, node):
            return unable

    with pytest.raises(LoweringError, match=r"neither ExecuTorch nor torch decomposes aten\.hard"):
        Lowerer([Unable()]).plan(Function(torch.nn.functional.hardswish), (X,))


def test_a_loop_over_what_no_kernel_computes_is_refused_with_the_op_inside():
    def looped(x, mask):
        return torch.cond(
            mask.sum() > 0,
            lambda x: torch.view_as_real(torch.fft.fft(x)).sum(),
            lambda x: x.sum(),
            (x,),
        )

    with pytest.raises(LoweringError) as caught:
        Lowerer([]).plan(Function(looped), (X, X > 0))
    assert "in a branch, aten._fft_r2c.default (aten__fft_r2c_default): " in caught.value.what
