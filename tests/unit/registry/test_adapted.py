"""Adapted partitioners: as in ExecuTorch's own path, composed with others, and caught at faults."""

import logging
import operator

import pytest
import torch
from executorch.backends.aoti.aoti_partitioner import AotiPartitioner
from executorch.backends.xnnpack.partition.config.generic_node_configs import ReLUConfig
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import WhyNoPartition, WhyNoPartitionReporter
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.graph_module import get_control_flow_submodules
from executorch.exir.lowered_backend_module import get_lowered_submodules
from support.models import nets
from support.models.small import Function
from support.quirks import model
from support.toys import Takes
from support.toys.accelerator import FakeAccelerator
from support.toys.runtime import assert_agrees
from torch import nn

import etdev
from etdev import Lowerer, hookimpl
from etdev.errors import DeviceError, PluginError
from etdev.graph.nodes import op_name

pytestmark = pytest.mark.usefixtures("quick_conversion")

FAKE = FakeAccelerator.__name__
RELU = exir_ops.edge.aten.relu.default
X = torch.randn(2, 4)


class Tagger(Partitioner):
    """Tags nodes by the ending of their op, after a look at the program."""

    def __init__(self, tags, specs=None, look=None):
        super().__init__()
        self.tags, self.specs, self.look = tags, specs, look
        self.shown = []

    def partition(self, exported_program):
        self.shown.append([(n.op, str(n.target)) for n in exported_program.graph.nodes])
        for node in exported_program.graph.nodes:
            for ending, tag in self.tags.items():
                if node.op == "call_function" and op_name(node).endswith(ending):
                    node.meta["delegation_tag"] = tag
        specs = {tag: DelegationSpec("XnnpackBackend", []) for tag in self.tags.values()}
        result = PartitionResult(exported_program, specs if self.specs is None else self.specs)
        return (self.look(result) if self.look else None) or result


class Chain(nn.Module):
    """add, mul, relu, sub: a line of ops."""

    def forward(self, x):
        return torch.relu((x + x) * x) - x


def delegates(manager):
    """The ops of each delegate; pieces of what portable kernels have whole have other names."""
    modules = [m for _, m, _ in get_lowered_submodules(manager.exported_program().graph_module)]
    graphs = [module.original_module.graph for module in modules]
    return sorted(sorted(str(n.target) for n in g.nodes if n.op == "call_function") for g in graphs)


def constants(manager):
    """Names of the weights in each delegate."""
    modules = [m for _, m, _ in get_lowered_submodules(manager.exported_program().graph_module)]
    return sorted(sorted(m.original_module.state_dict) for m in modules)


def openvino():
    pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    from executorch.backends.openvino.partitioner import OpenvinoPartitioner

    return OpenvinoPartitioner([CompileSpec("device", b"CPU")])


ALONE = {
    "xnnpack": (XnnpackPartitioner, ("mlp", "conv_net", "quantised_conv_net")),
    "aoti": (lambda: AotiPartitioner(FAKE, []), ("mlp", "conv_net", "bert")),
    "openvino": (openvino, ("mlp", "conv_net")),
}


# One model of each partitioner; the rest takes longer.
QUICK = (("xnnpack", "quantised_conv_net"), ("aoti", "mlp"), ("openvino", "mlp"))


@pytest.mark.slice("aoti-mlp", "openvino-mlp")
@pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param(name, model, marks=[] if (name, model) in QUICK else [pytest.mark.suite])
        for name, (_, known) in ALONE.items()
        for model in known
    ],
)
def test_alone_it_delegates_what_executorchs_own_path_does(name, model):
    make = ALONE[name][0]
    module, inputs = getattr(nets, model)()
    # ExecuTorch's own path takes constants out of the program it is given.
    program = torch.export.export(module, inputs)
    theirs = to_edge_transform_and_lower(program, partitioner=[make()])
    # Which doesn't simplify either.
    ours = Lowerer([etdev.adapt(make(), name=name)], simplify=False).lower(module, inputs)
    assert delegates(ours.edge) == delegates(theirs)
    assert constants(ours.edge) == constants(theirs)
    if name != "aoti":
        # OpenVINO computes in bfloat16 where the CPU can.
        tolerance = 1e-5 if name == "xnnpack" else 2e-2
        assert_agrees(ours, module, inputs, tolerance=tolerance)


def test_it_composes_with_the_cpu_plugin_in_both_orders():
    module, inputs = nets.mlp()
    relus = etdev.adapt(XnnpackPartitioner(configs=[ReLUConfig]), name="relus")
    for plugins, relu in (([relus, "cpu"], "relus"), (["cpu", relus], "cpu")):
        lowered = Lowerer(plugins).lower(module, inputs)
        plan = lowered.plan["forward"]
        assert plan.owner("aten_relu_default") == relu
        assert plan.owner("aten_linear_default") == "cpu"
        assert_agrees(lowered, module, inputs)


def test_what_is_taken_looks_like_foreign_delegates():
    toy = Tagger({"sub.Tensor": "mine"})
    plugins = [Takes("early", ("mul.Tensor", "relu.default")), etdev.adapt(toy, name="toy")]
    plan = Lowerer(plugins).plan(Chain(), (X,))["forward"]
    targets = [target for _, target in toy.shown[-1]]
    assert [op for op, _ in toy.shown[-1]].count("get_attr") == 1
    assert targets.count(str(executorch_call_delegate)) == 1
    assert not any("mul" in target or "relu" in target for target in targets)
    assert plan.owner("aten_sub_tensor") == "toy"


def test_around_one_delegate_it_goes_on_both_sides():
    """Its own two nodes aren't connected, but as one partition they would wait for themselves."""

    chains = model(
        lambda net, x, y: (torch.erf(net.one(x)), net.two(torch.atan(y))),
        **{name: nn.Linear(4, 4) for name in ("one", "two")},
    )
    aoti = etdev.adapt(AotiPartitioner(FAKE, []), name="aoti")
    plan = Lowerer(["cpu", aoti]).plan(chains, (X, X))["forward"]
    assert [partition.plugin for partition in plan.partitions].count("cpu") == 1
    assert plan.fallback == ()
    assert plan.owner("aten_erf_default") == plan.owner("aten_atan_default") == "aoti"


def test_tags_are_not_merged():
    toy = Tagger({"add.Tensor": "one", "mul.Tensor": "two"})
    plan = Lowerer([etdev.adapt(toy, name="toy")]).plan(Chain(), (X,))["forward"]
    assert [partition.nodes for partition in plan.partitions] == [
        ("aten_add_tensor",), ("aten_mul_tensor",)
    ]  # fmt: skip


def test_specs_of_one_partitioner_become_claims_of_their_own():
    specs = {
        "one": DelegationSpec("XnnpackBackend", [CompileSpec("a", b"1")]),
        "two": DelegationSpec(FAKE, []),
    }
    toy = Tagger({"add.Tensor": "one", "relu.default": "two"}, specs)
    plan = Lowerer([etdev.adapt(toy, name="toy")]).plan(Chain(), (X,))["forward"]
    found = [
        (partition.backend_id, [s.key for s in partition.compile_specs])
        for partition in plan.partitions
    ]
    assert found == [("XnnpackBackend", ["a"]), (FAKE, [])]


def test_a_getitem_goes_with_its_op_whatever_its_own_tag():
    def halves(x):
        left, right = torch.split(x, 2, dim=1)
        return left + right

    toy = Tagger({"split_with_sizes_copy.default": "one", "getitem": "two", "add.Tensor": "two"})
    plan = Lowerer([etdev.adapt(toy, name="toy")]).plan(Function(halves), (X,))["forward"]
    one, two = plan.partitions
    assert one.nodes[0].startswith("aten_split")
    assert len(one.nodes) == 3
    assert two.nodes == ("aten_add_tensor",)


def test_two_partitioners_may_use_the_same_tag():
    plugins = [
        etdev.adapt(Tagger({"add.Tensor": "tag0"}), name="adds"),
        etdev.adapt(Tagger({"sub.Tensor": "tag0"}), name="subs"),
    ]
    plan = Lowerer(plugins).plan(Chain(), (X,))["forward"]
    assert [partition.plugin for partition in plan.partitions] == ["adds", "subs"]


class Counter(nn.Module):
    """Adds what it has seen so far."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, 4))

    def forward(self, x):
        old = self.seen * self.seen
        self.seen.add_(x)
        return torch.relu(x + old) + self.seen


def test_a_buffer_that_only_its_partition_touches_is_its_own():
    with torch.no_grad():
        aoti = etdev.adapt(AotiPartitioner(FAKE, []), name="aoti")
        program = torch.export.export(Counter(), (X,))
    theirs = to_edge_transform_and_lower(program, partitioner=[AotiPartitioner(FAKE, [])])
    ours = Lowerer([aoti]).lower(program)
    assert delegates(ours.edge) == delegates(theirs)


@pytest.mark.slice("mul.Tensor")
@pytest.mark.parametrize("other", ["relu.default", "mul.Tensor", "add.Tensor"])
def test_a_buffer_that_others_touch_has_the_right_value_at_every_step(other):
    module = Counter()
    steps = [(torch.randn(2, 4),) for _ in range(3)]
    rest = etdev.adapt(AotiPartitioner("XnnpackBackend", []), name="rest")
    with torch.no_grad():
        lowered = Lowerer([Takes("early", (other,)), rest]).lower(module, steps[0])
    assert {partition.plugin for partition in lowered.plan.partitions} == {"early", "rest"}
    assert_agrees(lowered, module, *steps)


def test_a_constant_without_a_tag_stays_outside():
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = (nn.Parameter(torch.rand(2, 4)) for _ in range(2))

        def forward(self, x):
            return x * self.one - self.two

    def look(result):
        (one,) = (n for n in result.tagged_exported_program.graph.nodes if n.name == "p_one")
        one.meta["delegation_tag"] = "all"

    toy = Tagger({"mul.Tensor": "all", "sub.Tensor": "all"}, look=look)
    lowered = Lowerer([etdev.adapt(toy, name="toy")]).lower(module := Weighted(), (X,))
    (partition,) = lowered.plan.partitions
    assert {c.target: c.storage for c in partition.constants} == {"one": "owned", "two": "outside"}
    assert_agrees(lowered, module, (X,))


def conditional(x):
    return torch.cond(x.sum() > 0, lambda x: torch.relu(x) + 1, lambda x: x - 1, (x * 2,)) + 1


CONDITIONAL = Function(conditional)


@pytest.mark.suite
def test_control_flow_can_be_taken_whole():
    aoti = etdev.adapt(AotiPartitioner(FAKE, []), name="aoti")
    program = torch.export.export(CONDITIONAL, (X,))
    theirs = to_edge_transform_and_lower(program, partitioner=[AotiPartitioner(FAKE, [])])
    assert delegates(Lowerer([aoti], simplify=False).lower(program).edge) == delegates(theirs)
    plan = Lowerer([Takes("early", ("mul.Tensor",)), aoti]).plan(program)["forward"]
    assert plan.owner("cond") == "aoti"
    assert plan.fallback == ()


def test_control_flow_that_is_left_runs():
    xnnpack = etdev.adapt(XnnpackPartitioner(), name="xnnpack")
    lowered = Lowerer([xnnpack]).lower(CONDITIONAL, (X,))
    assert lowered.plan["forward"].owner("cond") == "portable"
    assert_agrees(lowered, CONDITIONAL, (X.abs(),), (-X.abs(),))


def test_tags_inside_a_branch_mean_nothing():
    def look(result):
        module = result.tagged_exported_program.graph_module
        (_, branch, _), _ = get_control_flow_submodules(module)
        for node in branch.graph.find_nodes(op="call_function", target=RELU):
            node.meta["delegation_tag"] = "inside"

    specs = {"inside": DelegationSpec("XnnpackBackend", [])}
    toy = etdev.adapt(Tagger({}, specs, look), name="toy")
    lowered = Lowerer([toy]).lower(CONDITIONAL, (X,))
    assert lowered.plan["forward"].owner("cond") == "portable"
    assert_agrees(lowered, CONDITIONAL, (X,))


def by_word(result):
    relu, add, _ = (n for n in result.tagged_exported_program.graph.nodes if n.op[:4] == "call")
    WhyNoPartition(logging.getLogger("toy"))(relu, "it is\n odd")
    WhyNoPartitionReporter().report_reject(add, "it is even")


NO_WORD = "Tagger gives no reason; a Partitioner gives one with ExecuTorch's WhyNoPartition"
SILENT, WORD = ("untagged", NO_WORD), "partitioner"


@pytest.mark.parametrize(
    ("look", "relu", "add", "sub"),
    [
        (by_word, (WORD, "it is odd"), (WORD, "it is even"), SILENT),
        (None, SILENT, SILENT, SILENT),
    ],
)
@pytest.mark.parametrize("tags", [{}, {"sub.Tensor": "mine"}])
def test_a_node_that_is_left_has_the_reason_that_the_partitioner_gives(look, relu, add, sub, tags):
    net = Function(lambda x: (torch.relu(x) + x) - x)
    before = WhyNoPartition.__call__, WhyNoPartitionReporter.report_reject
    plugin = etdev.adapt(Tagger(tags, look=look), name="toy")
    ledger = Lowerer([plugin]).plan(net, (X,))["forward"].ledger
    said = [(v.code, v.text) for entry in ledger for v in entry.verdicts if v.plugin == "toy"]
    assert said == [relu, add, ("claimed", "") if tags else sub]
    assert (WhyNoPartition.__call__, WhyNoPartitionReporter.report_reject) == before


class Wishing(Tagger):
    """Wants ops whole, or answers nonsense."""

    def __init__(self, tags, answer):
        super().__init__(tags)
        self.answer = answer

    def ops_to_not_decompose(self, ep):
        return self.answer


LINEAR = torch.ops.aten.linear.default


def test_ops_are_kept_whole_where_its_check_agrees():
    module = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)).eval()
    first = Wishing(
        {"linear.default": "all"}, ([LINEAR], lambda n: n.args[1].meta["val"].shape[0] == 8)
    )
    plan = Lowerer([etdev.adapt(first, name="toy")]).plan(module, (X,))["forward"]
    # Portable kernels have the other one whole.
    assert {e.op: e.owner for e in plan.ledger if e.falls_back} == {
        "aten.linear.default": "portable"
    }
    assert plan.ledger.owned() == {"toy": 1, "portable": 1}


def test_an_op_that_it_keeps_but_does_not_take_is_decomposed():
    toy = etdev.adapt(Wishing({}, ([torch.ops.aten.silu.default], None)), name="toy")
    plan = Lowerer([toy]).plan(nn.SiLU(), (X,))["forward"]
    assert "aten.silu.default" not in {e.op for e in plan.ledger if e.falls_back}


def test_an_op_that_lost_a_piece_is_shown_in_pieces():
    toy = Wishing({"linear.default": "whole", "permute_copy.default": "part"}, ([LINEAR], None))
    plugins = [Takes("early", ("addmm.default",)), etdev.adapt(toy, name="toy")]
    plan = Lowerer(plugins).plan(nn.Linear(4, 4).eval(), (X,))["forward"]
    assert plan.ledger.owned() == {"toy": 1, "early": 1}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "toy: keep_whole raised TypeError: cannot unpack "),
        (([LINEAR],), "toy: keep_whole raised ValueError: not enough values to unpack "),
    ],
)  # fmt: skip
def test_a_bad_wish_is_named(answer, text):
    toy = etdev.adapt(Wishing({}, answer), name="toy")
    with pytest.raises(PluginError) as caught:
        Lowerer([toy]).plan(nn.Linear(4, 4), (X,))
    assert str(caught.value).startswith(text)


only_since_1_5 = pytest.mark.skipif(
    not hasattr(Partitioner, "transform_for_pre_decomposition"), reason="ExecuTorch 1.4 hasn't it"
)


class Transforming(Tagger):
    """Since ExecuTorch 1.5 a partitioner may rewrite a program before decomposition.

    As XnnpackPartitioner folds computed weights on ExecuTorch's main, and pytorch/executorch#22514.
    """

    def __init__(self, rewrite):
        super().__init__({"clamp.default": "all"} if rewrite else {"add.Tensor": "all"})
        self.rewrite = rewrite

    def transform_for_pre_decomposition(self, exported_program):
        if self.rewrite:
            for node in exported_program.graph.nodes:
                if node.target is torch.ops.aten.relu.default:
                    node.target, node.args = torch.ops.aten.clamp.default, (*node.args, 0.0)
        return exported_program


@only_since_1_5
def test_a_rewrite_before_decomposition_is_made_on_a_copy():
    program = torch.export.export(Chain(), (X,))
    before = str(program.graph)
    lowered = Lowerer([etdev.adapt(Transforming(True), name="toy")]).lower(program)
    assert lowered.plan["forward"].ledger.owned() == {"portable": 3, "toy": 1}
    assert str(program.graph) == before


@only_since_1_5
def test_a_rewrite_is_refused_where_executorch_decomposes():
    toy = etdev.adapt(Transforming(True), name="toy")
    with pytest.raises(PluginError) as caught:
        to_edge_transform_and_lower(
            torch.export.export(Chain(), (X,)), partitioner=[etdev.partitioner([toy])]
        )
    assert str(caught.value) == (
        "toy: Transforming rewrites method 'forward' before its decomposition, which would change "
        "what other plugins are shown; lower with etdev.Lowerer, or what "
        "Transforming.transform_for_pre_decomposition returns"
    )


def test_a_rewrite_that_changes_nothing_is_fine():
    plan = Lowerer([etdev.adapt(Transforming(False), name="toy")]).plan(Chain(), (X,))
    assert plan["forward"].ledger.owned() == {"portable": 3, "toy": 1}


def targets(*values):
    return {"all": DelegationSpec(FAKE, [CompileSpec("target_device", v) for v in values])}


def test_the_device_of_its_compile_specs_is_derived_and_written_once():
    toy = etdev.adapt(Tagger({"add.Tensor": "all"}, targets(b"cuda:1", b"cuda:1")), name="toy")
    (partition,) = Lowerer([toy]).lower(Chain(), (X,)).plan.partitions
    assert (str(partition.device), partition.device_source) == ("cuda:1", "derived")
    assert [(s.key, s.value) for s in partition.compile_specs] == [("target_device", b"cuda:1")]


@pytest.mark.parametrize("device", ["cuda:2", {"forward": "cuda:2"}, etdev.Device("cuda", 2)])
def test_a_device_given_to_adapt_wins_over_its_compile_specs(device):
    toy = Tagger({"add.Tensor": "all"}, targets(b"cuda:1"))
    toy = etdev.adapt(toy, name="toy", device=device)
    (partition,) = Lowerer([toy]).plan(Chain(), (X,)).partitions
    assert (str(partition.device), partition.device_source) == ("cuda:2", "derived")
    (partition,) = Lowerer([toy], devices={"toy": "cuda:3"}).plan(Chain(), (X,)).partitions
    assert (str(partition.device), partition.device_source) == ("cuda:3", "pinned")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([b"gpu:0"], "toy: Tagger's tag 'all' has a bad compile spec: unknown type 'gpu'; "
         "valid are cpu, cuda:0 to cuda:127, and kinds of plugins' own, as npu:0"),
        ([b"cuda:0", b"cuda:1"], "toy: Tagger's tag 'all' has a bad compile spec: "
         "has 2 target_device specs; leave one"),
    ],
)  # fmt: skip
def test_a_device_that_is_none_names_the_partitioner(values, text):
    toy = etdev.adapt(Tagger({"add.Tensor": "all"}, targets(*values)), name="toy")
    with pytest.raises(DeviceError) as caught:
        Lowerer([toy]).plan(Chain(), (X,))
    assert str(caught.value) == text


def _tag(name, tag="all"):
    def look(result):
        for node in result.tagged_exported_program.graph.nodes:
            if node.name == name:
                node.meta["delegation_tag"] = tag

    return look


def _erase(result):
    (node,) = (n for n in result.tagged_exported_program.graph.nodes if n.name == "aten_add_tensor")
    node.replace_all_uses_with(node.args[0])
    node.graph.erase_node(node)


def _rewire(result):
    for node in result.tagged_exported_program.graph.nodes:
        if node.name == "aten_add_tensor":
            node.args = (node.args[0], 5.0)


def _half(result):
    _tag("aten_relu_default")(result)
    raise RuntimeError("no license\nfound")


ADD, SUB = {"add.Tensor": "all"}, {"sub.Tensor": "all"}
FAULTS = {
    "takes a node out": (ADD, None, _erase, "Tagger changed 'aten_add_tensor "),
    "other argument": (ADD, None, _rewire, "Tagger changed 'aten_add_tensor "),
    "input": (ADD, None, _tag("x"), "Tagger tags the input 'x' with 'all' in method 'forward'; "
        "tag computing nodes and constants"),
    "output": (ADD, None, _tag("output"), "Tagger tags the output with 'all' in method 'forward'; "
        "tag computing nodes and constants"),
    "call of a delegate": (ADD, None, _tag("delegate_early_0"), "Tagger tags 'delegate_early_0', "
        "which belongs to a delegate, with 'all' in method 'forward'; "
        "leave calls of delegates and their getitems alone"),
    "getitem of a delegate": (ADD, None, _tag("aten_mul_tensor"), "Tagger tags 'aten_mul_tensor', "
        "which belongs to a delegate, with 'all' in method 'forward'; "
        "leave calls of delegates and their getitems alone"),
    "tag without a spec": (ADD, {"other": DelegationSpec(FAKE, [])}, None, "Tagger tags "
        "'aten_add_tensor' with 'all', which is not in its partition_tags in method 'forward'; "
        "give it a DelegationSpec; there is one for 'other'"),
    "no spec": (ADD, {"all": None}, None, "claim_nodes raised AttributeError: "),
    "no specs": (ADD, [], None, "Tagger tags 'aten_add_tensor' with 'all', which is not in its "
        "partition_tags in method 'forward'; give it a DelegationSpec; there is one for nothing"),
    "no result": (ADD, None, lambda _: 7, "claim_nodes raised AttributeError: "),
    "not convex": (ADD | SUB, None, None, "claims aten_add_tensor, aten_sub_tensor of method "
        "'forward' as one group, but aten_mul_tensor lies between them"),
    "raises halfway": (ADD, None, _half, "claim_nodes raised RuntimeError: no license "
        "for method 'forward'; the cause is chained below"),
}  # fmt: skip


@pytest.fixture(scope="module")
def edge():
    """Chain in the edge dialect; a lowering changes nothing of it."""
    program = torch.export.export(Chain(), (X,))
    return to_edge_transform_and_lower(program).exported_program()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_the_partitioner_and_leaves_nothing_behind(fault, edge):
    tags, specs, look, text = FAULTS[fault]
    toy = Tagger(tags, specs, look)
    plugins = [Takes("early", ("mul.Tensor",)), etdev.adapt(toy, name="toy")]
    before = str(edge.graph)
    with pytest.raises(PluginError) as caught:
        Lowerer(plugins).plan(edge)
    assert str(caught.value).startswith(f"toy: {text}")
    assert str(edge.graph) == before
    assert not any("delegation_tag" in node.meta for node in edge.graph.nodes)
    # Without the fault it goes on where it was.
    toy.tags, toy.specs, toy.look = ADD, None, None
    assert Lowerer(plugins).plan(edge)["forward"].owner("aten_add_tensor") == "toy"


def test_two_tags_that_wait_for_each_other_are_one_partition():
    crossed = Function(lambda x, y: (torch.relu(x) + 1, torch.sigmoid(y) * 2))
    toy = Tagger(
        {"relu.default": "a", "mul.Tensor": "a", "sigmoid.default": "b", "add.Tensor": "b"}
    )
    plan = Lowerer([etdev.adapt(toy, name="toy")]).plan(crossed, (X, X))["forward"]
    assert [len(partition.nodes) for partition in plan.partitions] == [4]


def test_tags_that_the_program_came_with_mean_nothing():
    program = torch.export.export(Chain(), (X,))
    edge = to_edge_transform_and_lower(program).exported_program()
    for node in edge.graph.nodes:
        node.meta["delegation_tag"] = "all"
    plan = Lowerer([etdev.adapt(Tagger(ADD), name="toy")]).plan(edge)["forward"]
    assert plan.ledger.owned() == {"portable": 3, "toy": 1}
    assert {node.meta["delegation_tag"] for node in edge.graph.nodes} == {"all"}


def test_the_tag_on_a_delegates_module_goes_with_its_call():
    """Core ML's partitioner tags every get_attr, which no call of its own reads."""

    def look(result):
        for node in result.tagged_exported_program.graph.nodes:
            if node.op == "get_attr":
                node.meta["delegation_tag"] = "all"

    toy = etdev.adapt(Tagger(ADD, look=look), name="toy")
    lowered = Lowerer([Takes("early", ("mul.Tensor",)), toy]).lower(Chain(), (X,))
    assert lowered.plan["forward"].ledger.owned() == {"portable": 2, "toy": 1, "early": 1}
    assert_agrees(lowered, Chain(), (X,))


class Annotating(Takes):
    """Tells its compiler something, or another plugin's."""

    answer: object = None

    @hookimpl
    def annotate(self, partition):
        return self.answer


def test_annotations_reach_only_the_partitions_own_program(edge):
    early, late = Annotating("early", ("add.Tensor",)), Takes("late", ("relu.default",))
    early.answer = {"aten_add_tensor": {"told": 1}, "x": {"told": 2}}
    lowered = Lowerer([early, late]).lower(edge)
    modules = get_lowered_submodules(lowered.edge.exported_program().graph_module)
    told = {
        (n.name, n.meta["told"])
        for _, module, _ in modules
        for n in module.original_module.graph.nodes
        if "told" in n.meta
    }
    assert told == {("aten_add_tensor", 1), ("x", 2)}
    assert not any("told" in node.meta for node in edge.graph.nodes)


def test_methods_are_partitioned_each_on_its_own():
    toy = etdev.adapt(Tagger(ADD, targets(b"cuda:1")), name="toy")
    methods = {"one": (Chain(), (X,)), "two": (Chain(), (X,))}
    plan = Lowerer([toy]).plan(methods)
    assert [str(partition.device) for partition in plan.partitions] == ["cuda:1"] * 2
    assert [partition.method for partition in plan.partitions] == ["one", "two"]


@pytest.mark.parametrize(
    ("partitioner", "name", "text"),
    [
        (XnnpackPartitioner, "x", f"x: {XnnpackPartitioner!r} is not an ExecuTorch Partitioner; "
         "give an object of a class that subclasses Partitioner"),
        (operator.add, "x", "x: <built-in function add> is not an ExecuTorch Partitioner; "
         "give an object of a class that subclasses Partitioner"),
        (Tagger({}), "", "adapt: '' is not a name; write name=\"npu\""),
    ],
)  # fmt: skip
def test_what_is_no_partitioner_is_refused(partitioner, name, text):
    with pytest.raises(PluginError) as caught:
        etdev.adapt(partitioner, name=name)
    assert str(caught.value) == text


def test_a_node_pinned_elsewhere_is_shown_as_a_delegate_and_the_rest_is_taken():
    plugin = etdev.adapt(XnnpackPartitioner(), name="adapted")
    lowered = Lowerer([plugin], pins=[{"plugin": "portable", "op": "aten.mul.*"}]).lower(
        Chain(), (X,)
    )
    plan = lowered.plan["forward"]
    assert plan.fallback == ("aten_mul_tensor",)
    assert [partition.nodes for partition in plan.partitions] == [
        ("aten_add_tensor",),
        ("aten_relu_default", "aten_sub_tensor"),
    ]
    assert_agrees(lowered, Chain(), (X,))
