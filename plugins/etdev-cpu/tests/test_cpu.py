"""The CPU plugin against ExecuTorch's own XNNPACK path: same nodes, delegates and numbers."""

from itertools import chain

import pytest
import torch
from etdev_cpu.plugin import CpuPlugin
from examples import minilm
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import get_lowered_submodules
from models import nets
from torch import nn
from toys import Takes

from etdev import Lowerer
from etdev.errors import PluginError
from etdev.registry.selection import from_object
from etdev.runtime.compare import flat
from etdev.runtime.run import execute

MODELS = {
    "minilm": minilm.model,
    "mobilenet": nets.mobilenet,
    "llama": nets.llama,
    "quantised conv net": nets.quantised_conv_net,
    "bert": nets.bert,
    "conv net": nets.conv_net,
}


def delegates(program):
    """Names of the nodes of each delegate."""
    modules = [module for _, module, _ in get_lowered_submodules(program.graph_module)]
    graphs = [module.original_module.graph for module in modules]
    return [sorted(n.name for n in graph.nodes if n.op == "call_function") for graph in graphs]


def errors(program, inputs, expected):
    """Largest error of each output."""
    found = execute(program.buffer, inputs)
    return [float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)]


@pytest.mark.parametrize("name", MODELS)
def test_delegates_and_numbers_equal_executorchs_own_path(name):
    module, inputs = MODELS[name]()
    with torch.no_grad():
        program = torch.export.export(module, inputs)
        expected = flat(module(*inputs))
    theirs = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    ours = Lowerer(["cpu"]).lower(program)
    mine, other = (delegates(m.exported_program()) for m in (ours.edge, theirs))
    assert len(mine) == len(other)
    assert sorted(chain(*mine)) == sorted(chain(*other))
    our_errors = errors(ours.to_executorch(), inputs, expected)
    their_errors = errors(theirs.to_executorch(), inputs, expected)
    # Splitting elsewhere may round elsewhere; the error must stay of the same size.
    for mine_, other_, value in zip(our_errors, their_errors, expected, strict=True):
        assert mine_ <= 2 * other_ + 1e-6 * float(value.abs().max())


def test_a_single_delegate_gives_executorchs_own_bytes():
    program = torch.export.export(*nets.conv_net())
    theirs = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    ours = Lowerer(["cpu"]).lower(program)
    assert ours.to_executorch().buffer == theirs.to_executorch().buffer


def test_quantised_patterns_are_atomic():
    plan = Lowerer(["cpu"]).plan(*nets.quantised_conv_net())["forward"]
    assert plan.fallback == ("aten_mean_dim",)
    assert plan.ledger["aten_mean_dim"].verdicts[0].text == "mean.dim only supports keepdim=True"


def test_a_quantised_pattern_that_lost_a_node_is_lost_whole():
    early = Takes("early", ("relu.default",))
    ledger = Lowerer([early, "cpu"]).plan(*nets.quantised_conv_net())["forward"].ledger
    convolution = ledger["aten_convolution_default"]
    assert convolution.owner is None
    assert convolution.verdicts[1].code == "lost"


def test_a_float_layer_does_without_an_activation_that_is_taken():
    module, inputs = nets.mlp()
    plan = Lowerer([Takes("early", ("relu.default",)), "cpu"]).plan(module, inputs)["forward"]
    assert plan.owner("aten_relu_default") == "early"
    assert plan.owner("aten_linear_default") == "cpu"


@pytest.mark.parametrize("late", [False, True])
def test_a_quantised_model_compiles_beside_a_plugin_that_is_shown_other_ops(late):
    module, inputs = nets.quantised_conv_net()
    aten = torch.ops.aten
    other = Takes("other", ("nothing",), whole=(aten.conv2d.default, aten.mean.dim))
    plugins = ["cpu", other] if late else [other, "cpu"]
    beside = Lowerer(plugins).lower(module, inputs)
    alone = Lowerer(["cpu"]).lower(module, inputs)
    sizes = [[len(part.nodes) for part in one.plan.partitions] for one in (beside, alone)]
    assert sizes[0] == sizes[1]
    found = [execute(one.to_executorch().buffer, inputs)[0] for one in (beside, alone)]
    assert torch.equal(*found)


def test_a_layer_whose_weight_somebody_else_transposes_is_left_to_kernels():
    torch.manual_seed(0)
    # A square weight, so that only the numbers tell whether it was transposed.
    module, inputs = nn.Linear(8, 8).eval(), (torch.randn(2, 8),)
    lowered = Lowerer([Takes("early", ("permute_copy.default",)), "cpu"]).lower(module, inputs)
    assert lowered.plan["forward"].owner("aten_linear_default__aten_permute_copy_default") == (
        "early"
    )
    with torch.no_grad():
        expected = [module(*inputs)]
    assert errors(lowered.to_executorch(), inputs, expected)[0] < 1e-5


def test_every_refusal_has_a_reason():
    plan = Lowerer(["cpu"]).plan(*nets.bert())["forward"]
    verdicts = [entry.verdicts[0] for entry in plan.ledger if entry.owner is None]
    assert {verdict.code for verdict in verdicts} == {"op", "constraint"}
    assert all(verdict.text for verdict in verdicts)
    assert "invalid dtype" in {verdict.text for verdict in verdicts}


def test_no_trace_is_left_on_the_nodes():
    lowered = Lowerer(["cpu"]).lower(*nets.conv_net())
    for _, module, _ in get_lowered_submodules(lowered.edge.exported_program().graph_module):
        for node in module.original_module.graph.nodes:
            assert "xnn_partitioner_config" not in node.meta


def test_per_op_makes_a_delegate_per_op():
    module, inputs = nets.conv_net()
    merged = Lowerer(["cpu"]).plan(module, inputs)
    single = Lowerer([CpuPlugin(per_op=True)]).plan(module, inputs)
    assert len(single.partitions) > len(merged.partitions)
    assert {p.plugin for p in single.partitions} == {"CpuPlugin"}


def test_precisions_leave_other_patterns_alone():
    module, inputs = nets.quantised_conv_net()
    every, floats = (
        Lowerer([CpuPlugin(precisions=precisions)]).plan(module, inputs)["forward"]
        for precisions in ((), ["fp32"])
    )
    assert not any("quantize" in op for op in every.ledger.fallback_ops())
    assert any("quantize" in op for op in floats.ledger.fallback_ops())


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="'precisions' must be in"):
        CpuPlugin(precisions=["int3"])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("per_opp = true", "per_opp is an unknown key, did you mean per_op?"),
        ('per_op = "yes"', "per_op is 'yes', it must be true or false"),
        ('precisions = "fp32"', "precisions is 'fp32', write [\"fp32\"]"),
    ],
)
def test_bad_options_in_the_registry_name_plugin_and_option(tmp_path, options, problem):
    registry = tmp_path / "registry.toml"
    registry.write_text(f"[plugins.cpu.options]\n{options}\n")
    with pytest.raises(PluginError) as caught:
        Lowerer(registry=registry)
    assert caught.value.who.startswith("cpu (etdev-cpu ")
    assert problem in caught.value.what
    assert caught.value.cure == "its options are precisions, per_op, bf16, dynamic_weights"


def test_options_in_the_registry_reach_the_plugin(tmp_path):
    registry = tmp_path / "registry.toml"
    registry.write_text('[plugins.cpu.options]\nper_op = true\nprecisions = ["fp32"]\n')
    (plugin,) = Lowerer(registry=registry).plugins
    assert plugin.implementation == CpuPlugin(precisions=["fp32"], per_op=True)


def test_a_tied_embedding_runs():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(32, 8)

        def forward(self, tokens):
            return nn.functional.linear(self.embedding(tokens), self.embedding.weight)

    torch.manual_seed(0)
    module, tokens = Tied().eval(), torch.tensor([[1, 5, 7]])
    lowered = Lowerer(["cpu"]).lower(module, (tokens,))
    (partition,) = lowered.plan.partitions
    assert [c.storage for c in partition.constants] == ["copied"]
    with torch.no_grad():
        expected = [module(tokens)]
    assert errors(lowered.to_executorch(), (tokens,), expected)[0] < 1e-5


def test_the_plugin_is_fit_wherever_executorch_is():
    assert from_object(CpuPlugin()).probe().unfit is None
