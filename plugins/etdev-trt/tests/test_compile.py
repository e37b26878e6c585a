"""compile = true: what the plugin claims and builds, against what torch-tensorrt itself would."""

import pytest
import torch
from etdev_trt.plugin import TrtPlugin
from etdev_trt.testing import builder as fake_builder
from etdev_trt.testing.programs import Engines, X, exported
from executorch.exir import EdgeCompileConfig
from support.models import nets
from support.models.small import Function
from support.toys.torch_tensorrt import VERSION
from torch import nn
from torch.export import Dim

from etdev import Device, Lowerer
from etdev.errors import CompileError, PluginError
from etdev.lowerer import Settings
from etdev.pte.read import read

pytestmark = pytest.mark.usefixtures("torch_tensorrt")
# erfinv is not a core ATen op.
ANY_OP = Settings(compile_config=EdgeCompileConfig(_check_ir_validity=False))


@pytest.fixture
def builder():
    with fake_builder.installed() as fake:
        yield fake


class Mixed(nn.Module):
    """Ops that TensorRT has, then erfinv, which it hasn't, then more ops that it has."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        hidden = torch.erfinv(torch.tanh(torch.relu(self.one(x) * 2 + 1)))
        return torch.relu(self.two(hidden) * 2) + 1


def planned(module, inputs, *others, dynamic_shapes=None, **options):
    """The plan with engines to be built, and with other plugins after them."""
    lowerer = Lowerer([TrtPlugin(compile=True, **options), *others])
    plan = lowerer.plan(module, inputs, dynamic_shapes=dynamic_shapes, settings=ANY_OP)
    return plan["forward"]


def ops(plan):
    """Names of the ops of each partition, without namespace and overload.

    Getitems are left out, and so are the casts of constants, which torch-tensorrt folds.
    """
    known = {entry.node: entry.op.split(".")[1] for entry in plan.ledger}
    partitions = [[known[n] for n in p.nodes if n in known] for p in plan.partitions]
    return [sorted(op for op in ops if op != "_to_dim_order_copy") for ops in partitions]


def theirs(module, inputs, min_block_size=5, left=()):
    """Names of the ops of each engine that torch-tensorrt itself would build, and of the others."""
    from torch_tensorrt import Device as Gpu
    from torch_tensorrt.dynamo._settings import CompilationSettings
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS
    from torch_tensorrt.dynamo.lowering import (
        get_decompositions,
        post_lowering,
        pre_export_lowering,
    )
    from torch_tensorrt.dynamo.partitioning import fast_partition

    settings = CompilationSettings(device=Gpu(gpu_id=0), torch_executed_ops=set(left))
    program = pre_export_lowering(exported(module, *inputs), settings)
    lowered = post_lowering(program.run_decompositions(get_decompositions()).module(), settings)
    DYNAMO_CONVERTERS.set_compilation_settings(settings)
    split, _ = fast_partition(lowered, min_block_size, set(left))
    engines, outside = [], []
    for name, part in split.named_children():
        nodes = part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ()
        found = sorted(n.target.__name__.split(".")[0] for n in nodes if n.op == "call_function")
        (engines.append if "_run_on_acc" in name else outside.extend)(
            [op for op in found if op != "getitem"]
        )
    return engines, outside


# Planning


@pytest.mark.slice("conv_net")
@pytest.mark.versions
@pytest.mark.parametrize(
    "model", ["conv_net", "mlp", pytest.param("bert", marks=pytest.mark.suite)]
)
def test_a_model_that_torch_tensorrt_makes_one_engine_of_is_one_partition(model):
    module, inputs = nets.bert(layers=1) if model == "bert" else getattr(nets, model)()
    engines, outside = theirs(module, inputs)
    assert (len(engines), outside) == (1, [])
    plan = planned(module, inputs)
    assert len(plan.partitions) == 1
    assert plan.fallback == ()
    if model != "bert":  # torch-tensorrt folds more of its mask.
        assert ops(plan) == engines


@pytest.mark.slice("1")
@pytest.mark.parametrize(
    "min_block_size",
    [
        1,
        pytest.param(3, marks=[pytest.mark.versions, pytest.mark.suite]),
        pytest.param(4, marks=pytest.mark.suite),
        5,
    ],
)
def test_an_op_that_torch_tensorrt_does_not_convert_splits_a_model_as_it_would(min_block_size):
    engines, outside = theirs(Mixed(), (X,), min_block_size)
    plan = planned(Mixed(), X, min_block_size=min_block_size)
    assert ops(plan) == engines
    assert "erfinv" in outside
    pieces = [entry for entry in plan.ledger if entry.source_op == "aten.erfinv.default"]
    assert {entry.owner for entry in pieces} == {"portable"}


def test_why_an_op_is_not_in_an_engine_is_in_the_ledger():
    plan = planned(Mixed(), X, min_block_size=5)
    reasons = {entry.op: entry.verdicts[0] for entry in plan.ledger if entry.owner == "portable"}
    # A piece of erfinv, which torch-tensorrt doesn't convert and etdev decomposes.
    log = reasons["aten.log.default"]
    assert (log.code, log.text) == ("dtype", "TensorRT has no float64")
    relu = reasons["aten.relu.default"]
    assert (relu.code, relu.text) == ("block", "too few ops together for an engine")


@pytest.mark.versions
def test_ops_left_to_other_plugins_are_not_in_engines():
    left = "aten.tanh.default"
    engines, outside = theirs(Mixed(), (X,), 1, [f"torch.ops.{left}"])
    plan = planned(Mixed(), X, min_block_size=1, torch_executed_ops=[left])
    assert ops(plan) == engines
    assert "tanh" in outside


@pytest.mark.versions
def test_attention_is_kept_whole_for_torch_tensorrt_and_decomposed_for_later_plugins():
    def forward(x):
        x = x * 2 + 1
        return nn.functional.scaled_dot_product_attention(x, x, x) + 1

    attention = Function(forward)
    x = torch.randn(1, 2, 4, 8)
    (part,) = ops(planned(attention, x, min_block_size=1))
    assert "scaled_dot_product_attention" in part
    left = "aten.scaled_dot_product_attention.default"
    plan = planned(attention, x, min_block_size=1, torch_executed_ops=[left])
    assert left not in {entry.op for entry in plan.ledger}


def test_sizes_that_are_computed_stay_outside():
    sized = Function(lambda x: torch.tanh(torch.relu(x.reshape(x.shape[0] * 2, 2) + 1)))
    shapes = (({0: Dim("rows", min=2, max=8)},),)
    plan = planned(sized, (X,), dynamic_shapes=shapes, min_block_size=1)
    (part,) = plan.partitions
    assert all(tensor.dtype != "scalar" for tensor in (*part.inputs, *part.outputs))
    codes = {entry.op: entry.verdicts[0].code for entry in plan.ledger if entry.owner == "portable"}
    assert codes["aten.sym_size.int"] == codes["aten.view_copy.default"] == "scalar"


def test_an_op_that_torch_tensorrts_check_fails_on_stays_outside(monkeypatch):
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS

    checked = type(DYNAMO_CONVERTERS).__contains__

    def failing(converters, node):
        if "tanh" in node.name:
            raise IndexError("tuple index out of range")
        return checked(converters, node)

    monkeypatch.setattr(type(DYNAMO_CONVERTERS), "__contains__", failing)
    plan = planned(Function(lambda x: torch.tanh(x * 2 + 1) * 3), X, min_block_size=1)
    assert ops(plan) == [["add", "mul"], ["mul"]]
    verdict = plan.ledger["aten_tanh_default"].verdicts[0]
    assert verdict.text == "torch-tensorrt does not convert this aten.tanh.default"


def test_a_sort_of_the_last_dimension_is_planned():
    # The check of 2.13 reads the dimension, which the call leaves out.
    plan = planned(Function(lambda x: (x * 2).sort()[0]), X, min_block_size=1)
    assert "mul" in ops(plan)[0]


def test_float64_stays_outside():
    plan = planned(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double(), X.double())
    assert plan.partitions == ()
    verdicts = {entry.op: entry.verdicts[0] for entry in plan.ledger}
    relu = verdicts["aten.relu.default"]
    assert (relu.code, relu.text) == ("dtype", "TensorRT has no float64")


def test_engines_that_a_program_already_has_stay_as_they_are():
    plan = Lowerer([TrtPlugin(compile=True, min_block_size=1)]).plan(exported(Engines("2%9")))
    compilers = [(str(part.device), part.compiler) for part in plan.partitions]
    assert compilers == [
        ("cuda:0", "TensorRTBuilder"),
        ("cuda:2", None),
        ("cuda:0", "TensorRTBuilder"),
    ]


# Compiling, with all but the builder of engines real


def metadata(payload):
    from torch_tensorrt.executorch.serialization import deserialize_engine

    return deserialize_engine(payload)[1]


def payloads(lowered):
    from executorch.exir.lowered_backend_module import get_lowered_submodules

    graph = lowered.edge.exported_program().graph_module
    return [module.processed_bytes for _, module, _ in get_lowered_submodules(graph)]


class TwoWays(nn.Module):
    """Two inputs, of which the second is used first, and two outputs."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, y):
        first = torch.tanh(self.linear(y) * 2)
        return first + x, torch.relu(first - x)


@pytest.fixture(scope="module")
def two_ways(torch_tensorrt):
    """A program of TwoWays, lowered, and what its only engine was built of."""
    program = exported(TwoWays(), X, X + 1)
    with fake_builder.installed() as builder:
        lowered = Lowerer([TrtPlugin(compile=True)]).lower(program)
    (built,) = builder.built
    return program, lowered, built


@pytest.mark.versions
def test_a_built_engine_is_what_the_tensorrt_backend_runs(two_ways, tmp_path):
    _, lowered, (graph, inputs, settings) = two_ways
    (part,) = lowered.plan.partitions
    inside = [c.target for c in part.constants if c.inside]
    assert inside[:2] == ["linear.weight", "linear.bias"]
    assert len(inside) == len(part.constants)
    (method,) = read(lowered.save(tmp_path / "built.pte")).methods
    (delegate,) = method.delegates
    assert (delegate.backend_id, delegate.devices) == ("TensorRTBackend", (Device("cuda", 0),))
    assert [tuple(given.shape) for given in inputs] == [(2, 4), (2, 4)]
    assert len(graph.graph.output_node().all_input_nodes) == 2
    assert settings.device.gpu_id == metadata(payloads(lowered)[0]).device_id == 0


@pytest.mark.versions
def test_a_pin_decides_where_an_engine_is_built(builder):
    plugin = TrtPlugin(compile=True)
    lowered = Lowerer([plugin], devices={"TrtPlugin": "cuda:1"}).lower(TwoWays(), (X, X + 1))
    ((_, _, settings),) = builder.built
    assert settings.device.gpu_id == 1
    payload = payloads(lowered)[0]
    assert metadata(payload).device_id == 1
    assert plugin.payload_device("TensorRTBackend", payload, None) == Device("cuda", 1)


@pytest.mark.versions
def test_inputs_and_outputs_are_bound_in_the_order_of_the_delegate(two_ways):
    _, lowered, (graph, _, _) = two_ways
    (part,) = lowered.plan.partitions
    # The engine reads y first; with torch 2.14 inputs of the method keep their order.
    given = [tensor.name for tensor in part.inputs]
    assert given == (["y", "x"] if torch.__version__ < "2.14" else ["x", "y"])
    bindings = metadata(payloads(lowered)[0]).io_bindings
    users = {node.name: {user.target for user in node.users} for node in graph.graph.nodes}
    reads = [torch.ops.aten.linear.default in users[bindings[i].name] for i in range(2)]
    assert reads == [name == "y" for name in given]
    assert [b.name for b in bindings if not b.is_input] == ["output0", "output1"]


@pytest.mark.versions
def test_options_reach_torch_tensorrt_as_its_settings(builder):
    options = {
        "precision": "fp16",
        "optimization_level": 2,
        "workspace_size": 1 << 20,
        "hardware_compatible": True,
        "disable_tf32": True,
        "torch_executed_ops": ["aten.mm.default"],
    }
    lowered = Lowerer([TrtPlugin(compile=True, **options)]).lower(TwoWays(), (X, X + 1))
    ((_, _, settings),) = builder.built
    assert (settings.enable_autocast, settings.autocast_low_precision_type) == (True, torch.float16)
    assert (settings.optimization_level, settings.workspace_size) == (2, 1 << 20)
    assert (settings.hardware_compatible, settings.disable_tf32) == (True, True)
    assert metadata(payloads(lowered)[0]).hardware_compatible


@pytest.mark.versions
@pytest.mark.skipif(VERSION < "2.14", reason="torch-tensorrt 2.14 brought budgets")
def test_a_budget_makes_engines_that_can_stream_their_weights(builder):
    plugin = TrtPlugin(compile=True, weight_streaming_budget=7)
    lowered = Lowerer([plugin]).lower(TwoWays(), (X, X + 1))
    ((_, _, settings),) = builder.built
    assert settings.enable_weight_streaming
    (part,) = lowered.plan.partitions
    specs = {spec.key: spec.value for spec in part.compile_specs}
    assert specs["weight_streaming_budget"] == b"7"


@pytest.mark.versions
def test_dynamic_shapes_reach_torch_tensorrt_as_a_range(builder):
    chain = Function(lambda x: torch.tanh(torch.relu(torch.tanh(x * 2 + 1))))
    shapes = (({0: Dim("rows", min=3, max=8)},),)
    Lowerer([TrtPlugin(compile=True)]).lower(chain, (torch.ones(4, 4),), dynamic_shapes=shapes)
    ((_, (given,), _),) = builder.built
    assert (tuple(given.shape["min_shape"]), tuple(given.shape["max_shape"])) == ((3, 4), (8, 4))


def test_an_engine_that_needs_an_output_allocator_is_refused(builder, monkeypatch):
    monkeypatch.setattr(fake_builder.FakeEngine, "requires_output_allocator", True)
    with pytest.raises(CompileError, match="the engine needs an output allocator"):
        Lowerer([TrtPlugin(compile=True)]).lower(TwoWays(), (X, X + 1))


# Options


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ('precision = "int3"', "'precision' must be in"),
        ("optimization_level = 6", "'optimization_level' must be in"),
        ("weight_streaming_budget = -1", "'weight_streaming_budget' must be >= 0: -1"),
    ],
)
def test_bad_options_in_the_registry_name_plugin_and_option(tmp_path, options, problem):
    registry = tmp_path / "registry.toml"
    registry.write_text(f"[plugins.trt.options]\n{options}\n")
    with pytest.raises(PluginError) as caught:
        Lowerer(registry=registry)
    assert caught.value.who == "trt (etdev-trt 0.1.0)"
    assert problem in caught.value.what
