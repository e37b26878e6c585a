"""etdev.partitioner: the composition inside ExecuTorch's own calls."""

import pytest
import torch
from attrs import evolve
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.lowered_backend_module import get_lowered_submodules
from support.models import nets
from support.models.small import PAIR, Attention, Function
from support.toys import Takes
from support.toys.accelerator import Accelerator as OnGpu
from support.toys.runtime import assert_agrees, by_partitioner
from torch import nn

import etdev
from etdev import Device, Probe, hookimpl
from etdev.errors import (
    BudgetError,
    CompileError,
    EtdevError,
    EtdevWarning,
    LoweringError,
    PluginError,
)
from etdev.pte.read import methods_of
from etdev.testing.fakes import Accelerator, FakeAccelerator

pytestmark = [
    pytest.mark.skipif(
        not hasattr(Partitioner, "transform_for_pre_decomposition"),
        reason="ExecuTorch before 1.5 doesn't ask a partitioner to change a program",
    ),
    pytest.mark.usefixtures("quick_conversion"),
]


LAYER = nn.Linear(4, 3), (torch.ones(2, 4),)


def backends(manager, method="forward"):
    found = get_lowered_submodules(manager.exported_program(method).graph_module)
    return [module.backend_id for _, module, _ in found]


def without_sources(plan):
    """A plan without the exported program's ops, of which ExecuTorch's loop leaves no trace."""
    entries = tuple(evolve(entry, source_op="", source="") for entry in plan.ledger)
    return evolve(plan, ledger=evolve(plan.ledger, entries=entries))


def test_it_delegates_what_the_lowerer_would():
    program = torch.export.export(*nets.mlp())
    composed = etdev.partitioner(["cpu"])
    manager = to_edge_transform_and_lower(program, partitioner=[composed])
    lowered = etdev.Lowerer(["cpu"]).lower(program)
    assert without_sources(composed.plan) == without_sources(lowered.plan["forward"])
    assert manager.to_executorch().buffer == lowered.edge.to_executorch().buffer


def test_a_plugin_that_can_not_compile_here_is_refused_by_name():
    class Unfit(Takes):
        @hookimpl
        def probe(self):
            return Probe(unfit="no accelerator")

    with pytest.raises(PluginError, match="unfit: can't compile here: no accelerator"):
        by_partitioner(Function(torch.add), PAIR, [Unfit("unfit", ("add.Tensor",))])


@pytest.fixture
def rival(monkeypatch):
    """A plugin for additions, whose compiler fails."""

    def fail(*_):
        raise RuntimeError("out of tiles")

    monkeypatch.setattr(FakeAccelerator, "preprocess", fail)
    return Accelerator("rival")


def test_a_failure_of_a_compiler_names_its_plugin_or_its_nodes_go_to_the_next_one(rival, tmp_path):
    program = torch.export.export(Function(torch.add), (torch.ones(2), torch.ones(2)))
    registry = tmp_path / "registry.toml"
    registry.write_text('on_failure = "fallback"\n')
    for settings in ({"on_failure": "fallback"}, {"registry": registry}):
        composed = etdev.partitioner([rival, "cpu"], **settings)
        manager = to_edge_transform_and_lower(program, partitioner=[composed])
        assert backends(manager) == ["XnnpackBackend"]
        (verdict, _) = composed.plan.ledger["aten_add_tensor"].verdicts[:2]
        assert str(verdict) == "rival: its compiler failed: RuntimeError: out of tiles"
    composed = etdev.partitioner([rival, "cpu"], registry=registry, on_failure="error")
    with pytest.raises(CompileError, match=r"rival: .* failed on forward/rival_0 \(1 node"):
        to_edge_transform_and_lower(program, partitioner=[composed])
    with pytest.raises(EtdevError, match="on_failure: is 'ignore'; it must be one of 'error', "):
        etdev.partitioner(["cpu"], on_failure="ignore")


def test_an_executorch_that_asks_for_no_changes_is_refused(monkeypatch):
    monkeypatch.delattr(Partitioner, "transform_for_pre_decomposition")
    with pytest.raises(LoweringError) as caught:
        etdev.partitioner(["cpu"])
    assert caught.value.cure == "install executorch>=1.5, or use etdev.Lowerer"


def test_several_plugins_share_one_call():
    program = torch.export.export(*nets.mlp())
    composed = etdev.partitioner([Takes("relus", ("relu.default",)), "cpu"])
    manager = to_edge_transform_and_lower(program, partitioner=[composed])
    assert {part.plugin for part in composed.plan.partitions} == {"relus", "cpu"}
    assert len(backends(manager)) == len(composed.plan.partitions)
    manager.to_executorch()


def test_pins_limits_and_a_budget_hold():
    program = torch.export.export(*nets.mlp())
    relu = etdev.Pin("portable", op="aten.relu.*")
    options = {"pins": [relu], "limits": {"cpu": {"max_partitions": 1}}}
    composed = etdev.partitioner(["cpu"], **options, budget={"max_fallback_nodes": 3})
    # An op that was kept whole and given up is left to its kernel, since it can't be decomposed.
    to_edge_transform_and_lower(program, partitioner=[composed])
    assert any("linear" in name for name in composed.plan.fallback)
    composed = etdev.partitioner(["cpu"], pins=[relu], budget={"max_fallback_nodes": 1})
    with pytest.raises(BudgetError, match="1 nodes may be left to portable kernels, not 2: "):
        to_edge_transform_and_lower(program, partitioner=[composed])
    composed = etdev.partitioner(["cpu"], pins=[relu], budget={"max_fallback_nodes": 2})
    manager = to_edge_transform_and_lower(program, partitioner=[composed])
    assert backends(manager) == ["XnnpackBackend"] * 2
    assert composed.plan.fallback == ("aten_relu_default", "aten_native_layer_norm_default")


def test_an_op_that_only_executorch_keeps_whole_is_left_to_its_kernel():
    """XNNPACK wants this op whole, but not with sizes that change."""
    model = nn.Upsample(scale_factor=2, mode="bilinear")
    x = torch.randn(1, 2, 4, 5)
    shapes = ({2: torch.export.Dim("height", min=2, max=10)},)
    manager = by_partitioner(model, (x,), ["cpu"], shapes)
    assert_agrees(manager, model, (x,), (torch.randn(1, 2, 10, 5),))


def test_it_can_be_used_twice():
    composed = etdev.partitioner(["cpu"])
    for model in (LAYER, (nn.Conv2d(2, 3, 3), (torch.ones(1, 2, 5, 5),))):
        program = torch.export.export(*model)
        assert backends(to_edge_transform_and_lower(program, partitioner=[composed]))


def test_methods_have_partitioners_of_their_own():
    programs = {
        "one": torch.export.export(*LAYER),
        "two": torch.export.export(nn.Conv2d(2, 3, 3), (torch.ones(1, 2, 5, 5),)),
    }
    partitioners = {name: [etdev.partitioner(["cpu"], method=name)] for name in programs}
    manager = to_edge_transform_and_lower(programs, partitioner=partitioners)
    assert backends(manager, "one")
    assert backends(manager, "two")


def test_an_op_kept_whole_for_nobody_is_decomposed():
    whole = (torch.ops.aten.scaled_dot_product_attention.default,)
    keeper = Takes("keeper", ("add.Tensor",), whole=whole)
    manager = by_partitioner(Attention(), (torch.randn(1, 2, 4, 8),), [keeper])
    targets = [str(node.target) for node in manager.exported_program().graph.nodes]
    assert any("softmax" in target for target in targets)


def test_an_op_whose_plugin_no_longer_claims_it_is_refused_by_name():
    class Fickle(Takes):
        @hookimpl
        def claim_nodes(self, program):
            # ExecuTorch's loop plans once to convert the program and once to partition it.
            self.ops = () if self.shown else self.ops
            return super().claim_nodes(program)

    attention = nn.functional.scaled_dot_product_attention
    whole = (torch.ops.aten.scaled_dot_product_attention.default,)
    q = torch.randn(1, 2, 4, 8)
    fickle = Fickle("fickle", ("attention.default",), whole=whole)
    refused = "aten.scaled_dot_product_attention.default .* was kept whole but no plugin claims it"
    with pytest.raises(PluginError, match=f"partitioner: {refused}; lower with etdev.Lowerer"):
        by_partitioner(Function(lambda q: attention(q, q, q)), (q,), [fickle])


def test_an_export_recipe_takes_it():
    from executorch.export import ExportRecipe, LoweringRecipe, export

    module, inputs = nets.mlp()
    recipe = ExportRecipe(lowering_recipe=LoweringRecipe(partitioners=[etdev.partitioner(["cpu"])]))
    session = export(module, [inputs], recipe)
    assert session.get_pte_buffer()


@pytest.mark.slice("transposed")
@pytest.mark.parametrize(
    ("function", "x"),
    [(torch.nonzero, torch.eye(3)), (lambda x: x.nonzero().squeeze(1), torch.ones(3))],
    ids=["transposed", "fails"],
)
def test_coordinates_that_executorch_would_declare_in_another_order_are_refused(function, x):
    with pytest.raises(LoweringError) as caught:
        by_partitioner(Function(function), (x,))
    assert caught.value.what.startswith("ExecuTorch would transpose aten_nonzero_default")
    assert caught.value.cure == "lower with etdev.Lowerer, which returns it as it is"


def test_a_channels_last_image_of_one_channel_that_a_delegate_would_return_is_refused():
    """Its strides stand for an order that XNNPACK's delegate fails on when it is called."""
    net = nn.Conv2d(4, 1, 3).to(memory_format=torch.channels_last)
    x = torch.ones(1, 4, 6, 6).to(memory_format=torch.channels_last)
    with pytest.raises(LoweringError, match=r"would transpose getitem at .*, or fail on it"):
        by_partitioner(net, (x,), ["cpu"])


def test_coordinates_that_are_read_in_any_order_pass():
    module = Function(lambda x: (x.nonzero(), x[x.nonzero()]))
    inputs = (torch.tensor([0.0, 1.0, 2.0]),)
    assert_agrees(by_partitioner(module, inputs), module, inputs)


def test_ops_that_share_their_name_with_functions_of_numbers_have_a_kernel():
    by_partitioner(Function(lambda x: x**2.5), (torch.ones(2),))


def test_what_portable_kernels_can_not_do_is_refused_by_name():
    joined = Function(lambda x: torch.cat([x, x], 1))
    with pytest.raises(LoweringError) as caught:
        by_partitioner(joined, (torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last),))
    assert caught.value.what.startswith(
        "the portable kernel of aten.cat.default fails or is wrong for what "
    )
    assert caught.value.cure == "lower with etdev.Lowerer, which computes it with other ops"


@pytest.mark.parametrize(
    ("function", "inputs", "said"),
    [
        (lambda x, unit: x * len(unit), (torch.ones(2), "abc"), "is a string, or a Python"),
        (lambda x: x.argmax().item(), (torch.ones(2),), "returns no tensor, and"),
    ],
)
def test_what_the_runtime_can_not_be_given_or_return_is_refused(function, inputs, said):
    with pytest.raises(LoweringError, match=said):
        by_partitioner(Function(function), inputs, ["cpu"])


def test_an_order_that_executorch_writes_down_otherwise_is_refused():
    last = {"memory_format": torch.channels_last}
    with pytest.raises(LoweringError, match=r"_clone_dim_order.default fails or is wrong"):
        by_partitioner(Function(lambda x: x[:, :1].clone(**last)), (torch.randn(2, 3, 4, 4),))


def test_a_dynamic_size_of_a_channels_last_input_is_read():
    x = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
    sizes = ({0: torch.export.Dim("n", min=1, max=8)},)
    counted = Function(lambda x: (torch.relu(x), x.shape[0] * 2))
    assert_agrees(by_partitioner(counted, (x,), dynamic_shapes=(sizes,)), counted, (x,))


def test_what_they_rarely_get_wrong_is_said():
    with pytest.warns(
        EtdevWarning, match="aten.max_pool2d_with_indices.default .* is wrong for some"
    ):
        by_partitioner(nn.MaxPool2d(2), (torch.randn(1, 2, 4, 4),))


class Lists(nn.Module):
    """A constant that two partitions read in lists, or one in a list and one as it is."""

    def __init__(self, last):
        super().__init__()
        self.register_buffer("table", torch.randn(2, 3))
        self.last = last

    def forward(self, x):
        y = torch.sin(torch.cat([self.table, x]))
        return self.last(self.table, y)


def test_a_constant_in_the_lists_of_two_partitions_is_given_to_both():
    """The test of ExecuTorch's pull request 22798."""
    module, x = Lists(lambda table, y: torch.cat([y, table])), torch.randn(2, 3)
    manager = by_partitioner(module, (x,), [Takes("cats", ("cat.default",))])
    assert len(backends(manager)) == 2
    assert_agrees(manager, module, (x,), (x + 1,))


def test_a_constant_in_a_list_and_elsewhere_is_given_to_both():
    module, x = Lists(lambda table, y: y[:2] + table), torch.randn(2, 3)
    manager = by_partitioner(module, (x,), [Takes("both", ("cat.default", "add.Tensor"))])
    assert_agrees(manager, module, (x,))


@pytest.mark.parametrize(
    ("claims", "function"),
    [
        ("mul", lambda x, w: (x * w, x.sin() + w)),
        ("cat", lambda x, w: (torch.cat([x, w]), x.sin() + w)),
    ],
    ids=["outside of the delegate", "in a list and elsewhere"],
)
def test_a_constant_that_a_gpu_and_something_else_read_is_cloned_for_the_gpu(claims, function):
    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", torch.randn(2, 4))

        def forward(self, x):
            return function(x, self.w)

    plugin = OnGpu(ops=(claims,), device=Device("cuda", 0), constants=claims == "cat")
    program = torch.export.export(Reading(), (torch.randn(2, 4),))
    manager = to_edge_transform_and_lower(program, partitioner=[etdev.partitioner([plugin])])
    (method,) = methods_of(manager.to_executorch().executorch_program)
    assert method.delegates[0].devices == (Device("cuda", 0),)
    assert (method.host_to_device, method.device_to_host) == (2, 1)
    assert method.kernels["dim_order_ops::_clone_dim_order.out"] == 1


def test_a_constant_that_executorch_would_copy_to_a_gpu_itself_is_refused():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", torch.randn(2, 4))

        def forward(self, x):
            return x * self.w

    plugin = OnGpu(device=Device("cuda", 0), constants=False)
    program = torch.export.export(Scaled(), (torch.randn(2, 4),))
    with pytest.raises(PluginError) as caught:
        to_edge_transform_and_lower(program, partitioner=[etdev.partitioner([plugin])])
    what = "the constant 'w' as an input, which ExecuTorch can't copy to cuda:0"
    assert caught.value.what.endswith(what)
    assert caught.value.cure == "lower with etdev.Lowerer"
