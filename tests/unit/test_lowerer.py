"""The loop: that what is lowered computes the same, and what goes wrong is named.

Who gets what, and what they are shown, is in unit/planner/cases.
"""

import copy
import warnings

import pytest
import torch
from executorch.exir import EdgeCompileConfig
from support.models import nets
from support.models.small import HEADS, PAIR, AddMul, Attention, Function
from support.toys import Takes
from support.toys.accelerator import Accelerator
from support.toys.runtime import assert_agrees
from torch import nn
from torch.export import Dim

from etdev import Lowerer, Probe, hookimpl
from etdev.edge.conversion import Settings
from etdev.errors import (
    DeviceError,
    EtdevError,
    EtdevWarning,
    PluginError,
)
from etdev.pte.read import methods_in
from etdev.schema.ledger import Verdict

SDPA = torch.ops.aten.scaled_dot_product_attention.default


def test_a_contested_node_goes_to_the_earlier_plugin():
    early, late = Takes("early", ("add.Tensor",)), Takes("late", ("add.Tensor", "mul.Tensor"))
    lowered = Lowerer([early, late]).lower(AddMul(), PAIR)
    plan = lowered.plan["forward"]
    assert [(part.plugin, part.nodes) for part in plan.partitions] == [
        ("early", ("aten_add_tensor",)),
        ("late", ("aten_mul_tensor",)),
        ("early", ("aten_add_tensor_1",)),
    ]
    assert plan.ledger["aten_add_tensor"].verdicts == (
        Verdict("early", "claimed"),
        Verdict("late", "lost", "owned by early"),
    )
    assert_agrees(lowered, AddMul(), PAIR)


def test_an_op_kept_whole_that_nobody_claims_is_decomposed():
    lowered = Lowerer([Takes("keeper", ("add.Tensor",), whole=(SDPA,))]).lower(Attention(), HEADS)
    assert "aten.bmm.default" in [e.op for e in lowered.plan["forward"].ledger if e.falls_back]
    assert_agrees(lowered, Attention(), HEADS)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def inner(self, x):
        return torch.cond(x[0] > 1, self.linear, lambda y: y * 3, (x,))

    def nested(self, x):
        return torch.cond(x.sum() > 0, self.inner, lambda y: y * 2, (x,)) + 1

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: self.linear(y) + 1, lambda y: y * 2, (x,)) + 1


def test_a_linear_in_a_branch_of_a_branch_is_decomposed_though_the_cpu_plugin_keeps_linears():
    torch.manual_seed(0)
    module = Branches()
    module.forward = module.nested
    # The portable kernel of linear takes no vectors.
    lowered = Lowerer(["cpu"]).lower(module, (torch.full((4,), 2.0),))
    for value in (2.0, 0.5, -1.0):
        assert_agrees(lowered, module, (torch.full((4,), value),))


def test_expanding_keeps_constants_that_a_decomposition_brings_along():
    gelu = Function(lambda x: nn.functional.gelu(x, approximate="tanh") * 2)
    x = torch.randn(3, 4)
    whole = (torch.ops.aten.gelu.default,)
    lowered = Lowerer([Takes("keeper", ("mul.Tensor",), whole=whole)]).lower(gelu, (x,))
    assert_agrees(lowered, gelu, (x,))


def test_dynamic_shapes_run_at_several_sizes():
    module, (x,) = nets.mlp()
    shapes = {"input": {0: Dim("batch", min=1, max=8)}}
    lowered = Lowerer(["cpu"]).lower(module, (x,), dynamic_shapes=shapes)
    (first, *_) = lowered.plan["forward"].partitions
    assert first.inputs[0].dynamic
    assert first.inputs[0].size_bytes == 8 * 8 * 4
    assert_agrees(lowered, module, *((torch.randn(rows, 8),) for rows in (1, 2, 8)))


def test_every_method_has_a_plan_of_its_own():
    module, (x,) = nets.mlp()
    lowered = Lowerer(["cpu"]).lower({"encode": (module, (x,)), "combine": (AddMul(), PAIR)})
    assert [plan.method for plan in lowered.plan.methods] == ["combine", "encode"]
    assert [len(plan.partitions) for plan in lowered.plan.methods] == [1, 2]
    assert_agrees(lowered, AddMul(), PAIR, method="combine")


def test_nothing_of_the_callers_is_changed():
    module, inputs = nets.conv_net()
    program = torch.export.export(module, inputs)
    before = (str(program), {k: v.clone() for k, v in program.state_dict.items()})
    flags = [child.training for child in module.modules()]
    meta = [dict(node.meta) for node in program.graph.nodes]
    plugins = ["cpu"]
    Lowerer(plugins).lower(program).to_executorch()
    assert str(program) == before[0]
    assert all(torch.equal(program.state_dict[k], v) for k, v in before[1].items())
    assert [dict(node.meta).keys() for node in program.graph.nodes] == [m.keys() for m in meta]
    assert [child.training for child in module.modules()] == flags
    assert plugins == ["cpu"]


def test_the_callers_compile_config_is_not_changed():
    config = EdgeCompileConfig()
    before = copy.deepcopy(vars(config))
    Lowerer(["cpu"]).lower(*nets.mlp(), settings=Settings(compile_config=config))
    assert vars(config) == before


def test_lowering_twice_gives_the_same_bytes():
    lowerer = Lowerer(["cpu"])
    first, second = (lowerer.lower(*nets.mlp()).to_executorch().buffer for _ in range(2))
    assert first == second


def test_an_unfit_plugin_still_plans():
    class Unfit(Takes):
        @hookimpl
        def probe(self):
            return Probe(unfit="no accelerator")

    lowerer = Lowerer([Unfit("unfit", ("add.Tensor",))])
    assert len(lowerer.plan(AddMul(), PAIR).partitions) == 2
    with pytest.raises(PluginError) as caught:
        lowerer.lower(AddMul(), PAIR)
    assert str(caught.value) == (
        "unfit: can't compile here: no accelerator; planning works here; "
        'to lower without it name the others, plugins=["cpu"] or --plugin cpu'
    )
    with pytest.raises(PluginError) as caught:
        Lowerer([Unfit("unfit", ("add.Tensor",)), Takes("mine", ()), "cpu"]).lower(AddMul(), PAIR)
    assert caught.value.cure.endswith('plugins=["mine", "cpu"] or --plugin mine,cpu')


def test_a_device_that_this_machine_lacks_is_named_where_a_probe_can_tell():
    class Npu(Accelerator):
        found = ("cuda:0", "cuda:1")

        @hookimpl
        def probe(self):
            return Probe(self.found)

    def said(plugin, device, strict=False):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Lowerer([plugin], devices={"npu": device}, strict=strict).lower(AddMul(), PAIR)
        return [str(one.message) for one in caught if one.category is EtdevWarning]

    text = (
        "npu: forward/npu_0 is put on cuda:7, and this machine has cuda:0, cuda:1; run it where "
        'cuda:7 is, or devices={"npu": "cuda:0"} or --device npu=cuda:0'
    )
    assert said(Npu("npu"), "cuda:7") == [text]
    with pytest.raises(DeviceError) as caught:
        said(Npu("npu"), "cuda:7", strict=True)
    assert str(caught.value) == text
    assert said(Npu("npu"), "cuda:1", strict=True) == []
    anywhere = Npu("npu")
    anywhere.found = ()
    assert said(anywhere, "cuda:7", strict=True) == []


def test_the_executorch_manager_can_be_used_from_there():
    lowered = Lowerer(["cpu"]).lower(*nets.mlp())
    assert lowered.edge.methods == {"forward"}
    own, theirs = (each.to_executorch().buffer for each in (lowered, lowered.edge))
    # All but the digest of etdev's.
    assert methods_in(own) == methods_in(theirs)


def test_a_result_can_be_emitted_and_saved_several_times(tmp_path):
    lowered = Lowerer(["cpu"]).lower(Branches(), (torch.randn(2, 4),))
    first, second = (lowered.to_executorch().buffer for _ in range(2))
    assert first == second == lowered.save(tmp_path / "model.pte").read_bytes()


def test_a_claimed_control_flow_op_takes_its_branches_along():
    def pick(x):
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, (x,)) + 1

    lowered = Lowerer([Accelerator("cond", ops=("cond",))]).lower(Function(pick), (torch.randn(2),))
    (partition,) = lowered.plan.partitions
    assert {"submodule_0", "submodule_1"} <= set(partition.nodes)
    graph = lowered.edge.exported_program().graph
    assert [n.name for n in graph.find_nodes(op="get_attr")] == ["lowered_module_0"]


def test_plugins_are_asked_in_the_same_order_however_their_entry_points_come(monkeypatch):
    import importlib.metadata

    found = importlib.metadata.entry_points

    def shuffled(**query):
        return tuple(reversed(tuple(found(**query))))

    straight = Lowerer()
    monkeypatch.setattr(importlib.metadata, "entry_points", shuffled)
    turned = Lowerer()
    assert [p.name for p in turned.plugins] == [p.name for p in straight.plugins]
    # Not compiled: one of those installed may be unfit for this machine.
    assert turned.plan(*nets.mlp()) == straight.plan(*nets.mlp())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"devices": ["cpu"]}, 'devices: [\'cpu\'] is not a mapping; write {"cuda": "cuda:1"}'),
        (
            {"registry": 3},
            "registry: is 3; give a Registry, its tables, or the path of a registry.toml",
        ),
        ({"listener": 3}, "listener: is 3; give a function of a stage and a detail"),
        ({"strict": "no"}, "strict: is 'no'; it must be true or false"),
        ({"simplify": "no"}, "simplify: is 'no'; it must be true or false"),
    ],
)
def test_an_option_of_another_type_is_named(options, said):
    with pytest.raises(EtdevError) as caught:
        Lowerer([], **options)
    assert str(caught.value) == said


def test_arguments_of_another_type_are_named(tmp_path):
    lowerer, inputs = Lowerer([]), (torch.ones(2),)
    with pytest.raises(EtdevError) as caught:
        lowerer.lower(nn.ReLU(), inputs, settings=Settings(constant_methods={"forward": 1}))
    assert str(caught.value) == (
        "settings: constant_methods has 'forward', which is a method of the model; "
        "give the constant another name"
    )
    lowered = lowerer.lower(nn.ReLU(), inputs)
    with pytest.raises(EtdevError) as caught:
        lowered.save(None)
    assert str(caught.value) == "path: is None; name it model.pte"
    with pytest.raises(EtdevError) as caught:
        lowered.verify(steps=0)
    assert str(caught.value) == "steps: is 0; give how many calls, 1 or more"
