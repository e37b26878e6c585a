"""The CPU plugin against ExecuTorch's own XNNPACK path: same nodes, delegates and numbers."""

import copy
import functools
from collections import OrderedDict
from itertools import chain

import pytest
import torch
from etdev_cpu.plugin import CpuPlugin
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import get_lowered_submodules
from support.models import minilm, nets
from support.models.small import Function
from support.toys import Takes
from support.toys.runtime import assert_agrees
from torch import nn

from etdev import Lowerer, PluginError
from etdev.runtime.run import execute, run
from etdev.upstream.trees import flat

pytestmark = pytest.mark.usefixtures("quick_conversion")


def two_layer_minilm():
    """MiniLM with two of its six layers, and their real weights."""
    module, inputs = minilm.model()
    module.model.encoder.layer = module.model.encoder.layer[:2]
    return module, inputs


def inverted_residuals():
    """The beginning of MobileNetV2: its stem and four blocks, with and without a residual.

    By name, since ExecuTorch 1.4 can't fuse the batch norm of a layer that is called `0`.
    """
    module, inputs = nets.mobilenet()
    blocks = {f"block{index}": block for index, block in enumerate(module.model.layer[:4])}
    return nn.Sequential(OrderedDict(stem=module.model.conv_stem, **blocks)), inputs


MODELS = {
    "minilm": two_layer_minilm,
    "mobilenet": inverted_residuals,
    "llama": functools.partial(nets.llama, layers=1),
    "quantised conv net": nets.quantised_conv_net,
    "conv net": nets.conv_net,
}


@functools.cache
def exported(name):
    """A model's program, its inputs and what eager PyTorch returns."""
    module, inputs = MODELS[name]()
    with torch.no_grad():
        return torch.export.export(module, inputs), inputs, flat(module(*inputs))


@functools.cache
def lowered(name):
    """A model's program lowered by the plugin alone, and as ExecuTorch would: not simplified."""
    return Lowerer(["cpu"], simplify=False).lower(exported(name)[0])


def upstream(program):
    """A program lowered by ExecuTorch's own path."""
    return to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])


def delegates(program):
    """Names of the nodes of each delegate."""
    modules = [module for _, module, _ in get_lowered_submodules(program.graph_module)]
    graphs = [module.original_module.graph for module in modules]
    return [sorted(n.name for n in graph.nodes if n.op == "call_function") for graph in graphs]


def errors(program, inputs, expected):
    """Largest error of each output."""
    outputs = execute(program.buffer, inputs)
    return [float((a - b).abs().max()) for a, b in zip(outputs, expected, strict=True)]


# The demo shows the first of them, too.


@pytest.mark.slice("conv net")
@pytest.mark.parametrize("name", MODELS)
def test_delegates_and_numbers_equal_executorchs_own_path(name):
    program, inputs, expected = exported(name)
    ours, theirs = lowered(name), upstream(program)
    mine, other = (delegates(manager.exported_program()) for manager in (ours.edge, theirs))
    # XNNPACK also has what these are written with: powers that are wrong at infinities, means
    # without the dimensions that they reduce, and attention.
    written = [name for name in chain(*mine) if "__" in name.removeprefix("aten__")]
    ops = {*chain(*mine)}.difference(written)
    if any(name.startswith("aten_scaled_dot_product_attention") for name in written):
        assert len(mine) <= len(other)
        assert ops < {*chain(*other)}
    else:
        assert len(mine) == len(other) - any(name.startswith("aten_mean") for name in written)
        assert sorted(ops) == sorted(chain(*other))
    our_errors = errors(ours.to_executorch(), inputs, expected)
    their_errors = errors(theirs.to_executorch(), inputs, expected)
    # Splitting elsewhere may round elsewhere; the error must stay of the same size.
    for our_error, their_error, value in zip(our_errors, their_errors, expected, strict=True):
        assert our_error <= 2 * their_error + 1e-6 * float(value.abs().max())


def test_a_single_delegate_gives_executorchs_own_bytes():
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    program = torch.export.export(module.eval(), (torch.randn(1, 3, 16, 16),))
    # `Lowered.to_executorch` adds a digest.
    ours = Lowerer(["cpu"], simplify=False).lower(program).edge.to_executorch().buffer
    assert ours == upstream(program).to_executorch().buffer


@pytest.mark.suite
def test_quantised_patterns_are_atomic():
    plan = lowered("quantised conv net").plan["forward"]
    assert plan.fallback == ()


@pytest.mark.parametrize("op", ["relu.default", "quantize_per_tensor.default"])
def test_an_earlier_plugin_gets_no_part_of_a_quantised_pattern(op):
    program, early = exported("quantised conv net")[0], Takes("early", (op,))
    plan = Lowerer([early, "cpu"]).plan(program)["forward"]
    assert plan.fallback == lowered("quantised conv net").plan["forward"].fallback
    convolution = plan.ledger["aten_convolution_default"]
    assert (convolution.owner, convolution.precision) == ("cpu", "int8")
    said = {v.code for entry in plan.ledger for v in entry.verdicts if v.plugin == "early"}
    assert "torn" in said


def test_a_float_layer_does_without_an_activation_that_is_taken():
    module, inputs = nets.mlp()
    plan = Lowerer([Takes("early", ("relu.default",)), "cpu"]).plan(module, inputs)["forward"]
    assert plan.owner("aten_relu_default") == "early"
    assert plan.owner("aten_linear_default") == "cpu"


@pytest.mark.slice("True")
@pytest.mark.parametrize("late", [False, True])
def test_a_quantised_model_compiles_beside_a_plugin_that_is_shown_other_ops(late):
    program, inputs, _ = exported("quantised conv net")
    aten = torch.ops.aten
    other = Takes("other", ("nothing",), whole=(aten.conv2d.default, aten.mean.dim))
    plugins = ["cpu", other] if late else [other, "cpu"]
    beside, alone = Lowerer(plugins).lower(program), lowered("quantised conv net")
    sizes = [[len(p.nodes) for p in one.plan.partitions] for one in (beside, alone)]
    assert sizes[0] == sizes[1]
    outputs = [execute(one.to_executorch().buffer, inputs)[0] for one in (beside, alone)]
    assert torch.equal(*outputs)


@pytest.mark.parametrize(("simplify", "owner"), [(True, "cpu"), (False, "portable")])
def test_a_layer_whose_weight_another_plugin_transposes_is_left_to_kernels(simplify, owner):
    torch.manual_seed(0)
    # A square weight, so that only the numbers tell whether it was transposed.
    weight, inputs = torch.randn(8, 8), (torch.randn(2, 8),)
    module, early = Function(lambda x: x @ weight.t()), Takes("early", ("permute_copy.default",))
    lowered = Lowerer([early, "cpu"], simplify=simplify).lower(module, inputs)
    # As a linear layer it is not torn for a plugin that would only move values.
    owners = {entry.op: entry.owner for entry in lowered.plan["forward"].ledger}
    assert owners == (
        {"aten.linear.default": "cpu"}
        if simplify
        else {"aten.permute_copy.default": "early", "aten.mm.default": owner}
    )
    assert errors(lowered.to_executorch(), inputs, [module(*inputs)])[0] < 1e-5


def test_every_refusal_has_a_reason():
    # Simplified it has fewer kinds of ops that XNNPACK refuses.
    plan = Lowerer(["cpu"], simplify=False).plan(*nets.bert(layers=1))["forward"]
    verdicts = [entry.verdicts[0] for entry in plan.ledger if entry.owner == "portable"]
    assert {verdict.code for verdict in verdicts} == {"op", "constraint"}
    assert all(verdict.text for verdict in verdicts)
    assert "XNNPACK doesn't take int64 here" in {verdict.text for verdict in verdicts}


def test_no_trace_is_left_on_the_nodes():
    program = lowered("conv net").edge.exported_program()
    for _, module, _ in get_lowered_submodules(program.graph_module):
        for node in module.original_module.graph.nodes:
            assert "xnn_partitioner_config" not in node.meta


def test_per_op_makes_a_delegate_per_op():
    single = Lowerer([CpuPlugin(per_op=True)]).plan(exported("conv net")[0])
    assert len(single.partitions) > len(lowered("conv net").plan.partitions)
    assert {p.plugin for p in single.partitions} == {"CpuPlugin"}


def test_precisions_leave_other_patterns_alone():
    program, _, _ = exported("quantised conv net")
    floats = Lowerer([CpuPlugin(precisions=["fp32"])]).plan(program)["forward"]
    every = lowered("quantised conv net").plan["forward"]
    assert not any("quantize" in e.op for e in every.ledger if e.falls_back)
    assert any("quantize" in e.op for e in floats.ledger if e.falls_back)


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="'precisions' must be in"):
        CpuPlugin(precisions=["int3"])


class Writing(nn.Module):
    """A layer whose weights the method writes after it used them."""

    def __init__(self, layer, *names):
        super().__init__()
        self.layer = layer
        self.names = names

    def forward(self, x):
        out = self.layer(x).relu()
        for name in self.names:
            getattr(self.layer, name).mul_(0.5)
        return out


@pytest.mark.slice("bias", "conv and batch norm")
@pytest.mark.parametrize(
    "module",
    [
        Writing(nn.Conv2d(3, 4, 3), "weight"),
        Writing(nn.Conv2d(3, 4, 3), "bias"),
        Writing(nn.ConvTranspose2d(3, 4, 3), "weight"),
        Writing(nn.BatchNorm2d(3).eval(), "running_mean", "running_var"),
        nn.Sequential(nn.Conv2d(3, 3, 1), Writing(nn.BatchNorm2d(3).eval(), "running_var")),
    ],
    ids=["conv", "bias", "transposed", "batch norm", "conv and batch norm"],
)
def test_weights_that_the_method_writes_are_left_to_others(module):
    inputs = [(torch.randn(1, 3, 6, 6),) for _ in range(3)]
    lowered = Lowerer(["cpu"]).lower(module, inputs[0])
    assert_agrees(lowered, copy.deepcopy(module), *inputs)
    entries = lowered.plan["forward"].ledger.entries
    reasons = [verdict.text for entry in entries for verdict in entry.verdicts]
    assert any(reason.startswith("XNNPACK needs the weights of ") for reason in reasons)


@pytest.mark.slice("<lambda>1")
@pytest.mark.parametrize(
    "read",
    [
        lambda out, copy: (out, copy),
        lambda out, copy: (out.sort(1), copy),
        # In another delegate, after an op that XNNPACK doesn't have.
        lambda out, copy: (out, copy * out.sort(1)[0]),
    ],
)
def test_a_clone_of_what_others_read_is_left_to_others(read):
    class Twice(nn.Module):
        def forward(self, x):
            out = x * 2 + 1
            return read(out, out.clone())

    inputs = (torch.randn(2, 4),)
    lowered = Lowerer(["cpu"], simplify=False).lower(Twice(), inputs)
    assert_agrees(lowered, Twice(), inputs)


@pytest.mark.parametrize("layer", [nn.Linear(4, 3), nn.Conv2d(3, 4, 3)], ids=["linear", "conv"])
def test_a_weight_may_be_part_of_a_larger_tensor(layer):
    stored = torch.cat([torch.randn_like(layer.weight), layer.weight.detach()])
    layer.weight = nn.Parameter(stored[len(layer.weight) :])
    layer.bias = nn.Parameter(torch.randn(9)[5 : 5 + len(layer.bias)])
    inputs = (torch.randn(2, 4) if isinstance(layer, nn.Linear) else torch.randn(1, 3, 6, 6),)
    assert_agrees(Lowerer(["cpu"]).lower(layer, inputs), layer, inputs)
    assert layer.weight.storage_offset() == layer.weight.numel()


def test_slopes_outlive_the_file_that_they_were_loaded_from(tmp_path):
    """ExecuTorch 1.4.0 freed them, see pytorch/executorch#17559."""
    slopes = nn.PReLU(64)
    torch.nn.init.uniform_(slopes.weight, 0.1, 0.9)
    image = torch.randn(1, 64, 16, 16)
    lowered = Lowerer(["cpu"]).lower(slopes, (image,))
    assert lowered.plan["forward"].ledger["aten_prelu_default"].owner == "cpu"
    done = run(lowered.save(tmp_path / "net.pte"), [image], repeat=20)
    torch.testing.assert_close(done.outputs[0], slopes(image))


def test_the_name_of_its_backend_suggests_it():
    with pytest.raises(
        PluginError, match=r"not installed; did you mean cpu\? \(installed are .*cpu"
    ):
        Lowerer(["xnnpack"])
