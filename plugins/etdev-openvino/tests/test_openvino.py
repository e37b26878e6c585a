"""The OpenVINO plugin against OpenvinoPartitioner: the same nodes, less what runs otherwise."""

import contextlib
import functools
import importlib.metadata
import io
import json
import os
import subprocess
import sys

import pytest
import torch
from executorch.exir.capture._config import EdgeCompileConfig
from support.models import nets, precisions
from support.models.small import Function
from torch import nn

pytest.importorskip("openvino", reason="openvino is not installed")

from etdev_openvino.plugin import OpenVinoPlugin
from executorch.backends.openvino.partitioner import OpenvinoPartitioner
from support.toys import Takes
from support.toys.runtime import assert_agrees, execute
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup

from etdev import Lowerer, Pin
from etdev.errors import PluginError
from etdev.lowerer import Settings
from etdev.registry import PluginEntry, Registry
from etdev.registry.answers import probe
from etdev.registry.selection import from_object
from etdev.upstream.trees import flat

OPENVINO = OpenVinoPlugin(precision="f32")
# The corpus holds ops that ExecuTorch's verifier doesn't know.
LENIENT = Settings(compile_config=EdgeCompileConfig(_check_ir_validity=False))


def lowered(function, *inputs, plugins=(OPENVINO,), **options):
    return Lowerer(plugins).lower(Function(function).eval(), inputs, settings=LENIENT, **options)


def outputs(function, *inputs, plugins=(OPENVINO,)):
    """What a function returns in ExecuTorch's runtime, and in eager PyTorch."""
    (returned,) = execute(lowered(function, *inputs, plugins=plugins), inputs)
    return returned, flat(function(*inputs))


def refusal(function, *inputs, op, **options):
    """Code of the refusal of the first node of an op."""
    plan = Lowerer([OPENVINO]).plan(Function(function).eval(), inputs, settings=LENIENT, **options)
    return code_of(plan, op)


def code_of(plan, op):
    entries = [entry for entry in plan["forward"].ledger if f".{op}." in entry.op]
    return entries[0].verdicts[0].code if entries[0].owner == "portable" else None


MODELS = {
    "conv_net": nets.conv_net,
    "bert": functools.partial(nets.bert, layers=1),
    "llama": functools.partial(nets.llama, layers=1),
    "quantised_conv_net": nets.quantised_conv_net,
}


def in_pieces(program):
    """With attention decomposed, as the partitioner is shown it and the plugin is not."""
    op = torch.ops.aten.scaled_dot_product_attention.default
    return program.run_decompositions({op: torch.export.default_decompositions()[op]})


# Else linear layers stay whole for ExecuTorch's optimised kernels.
IN_PIECES = Registry((PluginEntry("portable", options={"kernels": "portable"}),))


@pytest.mark.slice("conv_net")
@pytest.mark.parametrize("name", MODELS)
def test_it_claims_what_the_partitioner_takes_less_what_it_refuses(name):
    module, inputs = MODELS[name]()
    program = in_pieces(torch.export.export(module, inputs))
    ledger = Lowerer([OpenVinoPlugin()], registry=IN_PIECES).plan(program)["forward"].ledger
    edge = Lowerer([], registry=IN_PIECES).lower(program).edge.exported_program()
    with contextlib.redirect_stdout(io.StringIO()):
        tagged = OpenvinoPartitioner([]).partition(edge).tagged_exported_program
    # Without a plugin, some ops are in pieces, which are named after them.
    tagged_names = {n.name for n in tagged.graph.nodes if "delegation_tag" in n.meta}
    theirs = tagged_names | {name.rpartition("__aten_")[0] for name in tagged_names}
    ours = {entry.node for entry in ledger if entry.owner != "portable"}
    refused = {e.node for e in ledger if e.owner == "portable" and e.verdicts[0].code != "op"}
    assert ours
    assert ours <= theirs
    assert theirs & {entry.node for entry in ledger} == ours | refused


SIX = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("function", "inputs", "op", "code"),
    [
        (lambda x: x.sum() * x, (SIX,), "sum", "rank"),
        (lambda x, y: x * y, (SIX, torch.tensor(2.0)), "mul", "rank"),
        (lambda x: torch.tanh(x), (torch.zeros(0, 3),), "tanh", "empty"),
        (lambda x: x + x, (SIX.to(torch.int8),), "add", "integer"),
        (lambda x: x + x, (SIX.to(torch.int64),), "add", "integer"),
        (lambda x: x == x.flip(1), (SIX.to(torch.int32),), "eq", "integer"),
        (lambda x: x.to(torch.int32), (SIX,), "_to_dim_order_copy", "integer"),
        (lambda x: x + x, (SIX.to(torch.bfloat16),), "add", "dtype"),
        (lambda x: x + x, (SIX.to(torch.float64),), "add", "dtype"),
        (lambda x: x.clone(), (SIX,), "_clone_dim_order", "nothing"),
        (lambda x: torch.cat([x]), (SIX,), "cat", "arguments"),
        (lambda x: nn.functional.avg_pool2d(x, 2, ceil_mode=True), (torch.ones(1, 1, 5, 5),),
         "avg_pool2d", "arguments"),
        (lambda x: torch.tanh(x).to(memory_format=torch.channels_last), (torch.ones(1, 3, 4, 4),),
         "_to_dim_order_copy", "layout"),
        (lambda x: x @ x, (torch.ones(3, 3),), "mm", "precision"),
        (lambda x: torch.nn.functional.pixel_shuffle(x, 2), (torch.ones(1, 4, 2, 2),), "view_copy",
         None),
    ],
)  # fmt: skip
def test_what_would_fail_or_differ_is_refused_and_runs_on_kernels(function, inputs, op, code):
    result = lowered(function, *inputs)
    assert code_of(result.plan, op) == code
    if inputs[0].dtype != torch.bfloat16:
        (returned,) = execute(result, inputs)
        for output, value in zip(returned, flat(function(*inputs)), strict=True):
            torch.testing.assert_close(output, value)


def test_dynamic_shapes_are_refused():
    shapes = {"inputs": ({0: torch.export.Dim("rows", min=2, max=8)},)}
    code = refusal(lambda x: torch.tanh(x), SIX, op="tanh", dynamic_shapes=shapes)
    assert code == "dynamic"


def test_random_numbers_are_refused():
    assert refusal(lambda x: torch.bernoulli(x, 0.5), SIX, op="rand") == "random"


def test_a_constant_scalar_goes_with_the_op_that_reads_it():
    def twice(x):
        return torch.where(x > 2, torch.tensor(3.0), torch.tanh(x + 1) * 2)

    (output,), (expected,) = outputs(twice, SIX)
    torch.testing.assert_close(output, expected)
    plan = lowered(twice, SIX).plan["forward"]
    assert plan.fallback == ()
    assert all(t.shape for part in plan.partitions for t in (*part.inputs, *part.outputs))


def test_a_copy_goes_with_what_it_copies():
    returned, expected = outputs(lambda x: (torch.tanh(x).clone(), x + 1), SIX)
    for output, value in zip(returned, expected, strict=True):
        torch.testing.assert_close(output, value)
    plan = lowered(lambda x: torch.tanh(x).clone(), SIX).plan["forward"]
    assert plan.fallback == ()


def test_positions_are_integers_that_it_takes():
    def look_up(table, rows):
        return table[rows] * 2

    rows = torch.tensor([1, -1])
    (output,), (expected,) = outputs(look_up, SIX, rows)
    torch.testing.assert_close(output, expected)
    assert lowered(look_up, SIX, rows).plan["forward"].fallback == ()


def test_pinned_to_kernels_an_index_out_of_range_is_an_error():
    function, inputs = Function(lambda x, i: x[i] * 2), (torch.randn(4, 3), torch.tensor([0, 2]))
    pin = Pin("portable", op="aten.index.Tensor")
    lowered = Lowerer(["openvino"], pins=[pin]).lower(function, inputs)
    assert lowered.plan["forward"].fallback
    with pytest.raises(RuntimeError, match="0x12"):
        execute(lowered, (inputs[0], torch.tensor([0, 4])))


def test_a_fake_quantiser_is_atomic_and_rounds_as_pytorch_does():
    ops = torch.ops.quantized_decomposed

    def fake(x):
        integers = ops.quantize_per_tensor.default(x, 0.1, 3, -128, 127, torch.int8)
        return torch.tanh(
            ops.dequantize_per_tensor.default(integers, 0.1, 3, -128, 127, torch.int8)
        )

    x = torch.linspace(-20, 20, 401).reshape(1, -1)
    (output,), (expected,) = outputs(fake, x)
    torch.testing.assert_close(output, expected)
    plan = lowered(fake, x, plugins=[Takes("early", ("dequantize_per_tensor.default",)), OPENVINO])
    assert (
        plan.plan["forward"].owner("quantized_decomposed_quantize_per_tensor_default") == "portable"
    )


def test_an_integer_weight_is_dequantised_on_kernels():
    ops = torch.ops.quantized_decomposed
    integers = torch.tensor([[1, -2, 3]], dtype=torch.int8)

    def scale(x):
        weight = ops.dequantize_per_tensor.default(integers, 0.5, 0, -128, 127, torch.int8)
        return torch.tanh(x * weight)

    assert refusal(scale, SIX, op="dequantize_per_tensor") == "quantised"
    (output,), (expected,) = outputs(scale, SIX)
    torch.testing.assert_close(output, expected)


def test_a_linear_layer_that_it_leaves_stays_whole_for_others():
    module, inputs = nets.mlp()
    plan = Lowerer([OPENVINO, "cpu"]).plan(module, inputs)["forward"]
    assert plan.owner("aten_linear_default") == "cpu"
    assert plan.owner("aten_native_layer_norm_default") == "OpenVinoPlugin"


def test_it_prepares_no_constants_for_others():
    plan = Lowerer([OPENVINO], registry=IN_PIECES).plan(*nets.mlp())["forward"]
    transposes = [entry for entry in plan.ledger if "permute_copy" in entry.op]
    assert {entry.verdicts[0].code for entry in transposes} == {"constant"}


@pytest.mark.parametrize("name", ["aten.tanh", "aten.tanh.default"])
def test_skipped_ops_are_left_to_other_plugins(name):
    plan = Lowerer([OpenVinoPlugin(skip=[name])]).plan(
        Function(lambda x: torch.tanh(x) + 1), (SIX,)
    )
    entry = plan["forward"].ledger["aten_tanh_default"]
    assert (entry.owner, entry.verdicts[0].code) == ("portable", "skipped")
    assert entry.verdicts[0].text == f"{name} is in the option skip"
    assert plan["forward"].owner("aten_add_tensor") == "OpenVinoPlugin"


@pytest.mark.suite
def test_without_products_float32_stays_float32():
    module, inputs = nets.bert(layers=1)
    assert_agrees(Lowerer([OPENVINO]).lower(module, inputs), module, inputs)


@pytest.mark.suite
def test_a_variable_keeps_products_in_float32_where_the_model_runs(tmp_path):
    module, inputs = nets.mlp()
    path = Lowerer([OpenVinoPlugin()]).lower(module, inputs).save(tmp_path / "net.pte")
    torch.save(list(inputs), tmp_path / "inputs.pt")
    code = (
        "import json, sys, torch; from etdev.runtime.run import run;"
        "print(json.dumps(run(sys.argv[1], torch.load(sys.argv[2])).outputs[0].tolist()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path, tmp_path / "inputs.pt"],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
        capture_output=True,
        text=True,
        check=True,
    )
    with torch.no_grad():
        expected = module(*inputs)
    output = torch.tensor(json.loads(done.stdout.splitlines()[-1]))
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"precision": "f16"}, "'precision' must be in"),
        ({"device": "TPU"}, "'device' must match regex"),
        ({"precision": "f32", "device": "GPU"}, "precision 'f32' can't be had on GPU, write"),
        ({"precision": "f32_all", "device": "NPU"}, "precision 'f32_all' can't be had on NPU"),
        ({"skip": ["mm"]}, "skip has 'mm', write ops such as 'aten.mm' or 'aten.add.Tensor'"),
    ],
)
def test_bad_options_are_refused(options, problem):
    with pytest.raises(ValueError, match=problem):
        OpenVinoPlugin(**options)


@pytest.mark.parametrize(
    ("name", "version", "problem"),
    [
        ("openvino", None, 'openvino is not installed; pip install "openvino>=2025.4,<2026"'),
        ("openvino", "2026.4.1", 'openvino 2026.4.1 does not fit; pip install "openvino>=2025.4,'),
        ("openvino", "2025.3.0", "openvino 2025.3.0 does not fit; "),
        ("nncf", None, 'nncf is not installed; pip install "nncf>=3.1,<3.2"'),
        ("nncf", "3.3.0", 'nncf 3.3.0 does not fit; pip install "nncf>=3.1,<3.2"'),
    ],
)
def test_what_is_missing_is_named_with_the_cure(monkeypatch, name, version, problem):
    real = importlib.metadata.version

    def fake_version(asked):
        if asked != name:
            return real(asked)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(asked)
        return version

    monkeypatch.setattr(importlib.metadata, "version", fake_version)
    assert probe(from_object(OPENVINO)).unfit.startswith(problem)
    with pytest.raises(PluginError) as caught:
        Lowerer([OPENVINO]).plan(Function(torch.tanh), (SIX,))
    assert str(caught.value).startswith(f"openvino: {problem}")


@pytest.mark.slice("4")
@pytest.mark.parametrize("bits", [4, 8])
def test_layers_of_torchao_are_left_to_backends_that_know_them(bits):
    module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    group = PerGroup(32) if bits == 4 else PerAxis(0)
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=getattr(torch, f"int{bits}"), weight_granularity=group
    )
    quantize_(module, config)
    calls = [(torch.randn(3, 64),) for _ in range(2)]
    lowered = Lowerer(["openvino", "cpu"]).lower(module, calls[0])
    plan = lowered.plan["forward"]
    assert [p.plugin for p in plan.partitions] == ["cpu", "openvino", "cpu"]
    assert not plan.fallback
    assert_agrees(lowered, module, *calls, tolerance=0.05)


def test_a_layer_of_torchao_is_not_torn_for_the_view_that_it_ends_with():
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).eval()
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32)
    )
    quantize_(module, config)
    net = Function(lambda x: x * 2 + module(x) * x)
    plan = Lowerer(["openvino", "cpu"]).plan(net, (torch.randn(1, 1, 64),))["forward"]
    linears = [entry for entry in plan.ledger if entry.op == "aten.linear.default"]
    assert [entry.owner for entry in linears] == ["cpu", "cpu"]
    assert {v.code for e in linears for v in e.verdicts if v.plugin == "openvino"} == {"pieces"}
    assert plan.owner("aten_mul_tensor_1") == "openvino"
    assert not plan.fallback


def test_layers_of_torchao_that_no_other_backend_takes_are_computed_in_pieces():
    module = nn.Sequential(nn.Linear(64, 8)).eval()
    quantize_(module, IntxWeightOnlyConfig(weight_dtype=torch.int8))
    calls = [(torch.randn(3, 64),) for _ in range(2)]
    lowered = Lowerer([OPENVINO, "cpu"]).lower(module, calls[0])
    assert_agrees(lowered, module, *calls)


@pytest.mark.slice("['openvino', 'cpu']")
@pytest.mark.parametrize("order", [["openvino", "cpu"], ["cpu", "openvino"]], ids=str)
def test_an_int8_island_of_another_backend_is_not_torn_for_its_quantisers(order):
    module, inputs = precisions.island("sin")
    floats = [Pin("openvino", op="aten.tanh.*"), Pin("openvino", op="aten.sin.*")]
    pins = [*floats, Pin("cpu", op="aten.convolution.*")]
    lowered = Lowerer(order, pins=pins).lower(module, inputs)
    plan = lowered.plan["forward"]
    assert plan.ledger.precisions() == {"cpu": {"int8": 16}, "openvino": {"float32": 2}}
    assert [(c.source, c.target, c.forms) for c in plan.conversions] == [
        ("openvino_0", "cpu_0", ("float32", "int8")),
        ("cpu_0", "openvino_1", ("int8", "float32")),
    ]
    calls = [(torch.randn(1, 4, 8, 8),) for _ in range(3)]
    assert_agrees(lowered, module, *calls, tolerance=0.05)
