"""What XNNPACK would compute wrongly is left to others, and programs compute what eager does."""

import copy

import executorch.kernels.quantized  # noqa: F401  (what the plugin refuses runs there)
import pytest
import torch
from etdev_cpu.plugin import CpuPlugin
from support import quirks
from support.models.small import Function
from support.quirks import model
from support.quirks.quantised import eight_bits, floats, integers
from support.toys import Takes
from support.toys.runtime import assert_agrees, by_partitioner, execute
from torch import nn
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    PerGroup,
    quantize_,
)

from etdev import Lowerer
from etdev.errors import LoweringError

# Faults of XNNPACK, of which support/quirks has a model each, and the reason why it is given none
# of what it gets wrong. Without one it takes all, or others take what is before it.
CODES = {
    "quantised-linears-called-twice": None,
    "quantised-layers-called-twice": None,
    "quantised-weights-alone": "constraint",
    "odd-rows-of-four-bits": "channels",
    "narrow-ranges": "range",
    "changed-scales": "quantised",
    "dequantised-values-read-twice": None,
    "weights-of-two-scales": "shared",
    "kernels-read-as-tensors": "shared",
    "kernels-of-two-layers": "shared",
    "freed-constants": "shared",
    "norms-of-one-layer": "shared",
    "reductions-without-keepdim": "arguments",
    "reductions-of-channels": "arguments",
    "permutes-of-numbers": "arguments",
    "factors-of-products": "arguments",
    "slices-from-before-the-start": "constraint",
    "slopes-of-matrices": None,
    "seven-dimensions": "rank",
    "softmax-of-images": "order",
    "tanh-gelus": None,
}
# With and without another plugin that takes linear layers first, where there is one.
LINEAR = (
    *("quantised-linears-called-twice", "quantised-weights-alone", "odd-rows-of-four-bits"),
    "dequantised-values-read-twice",
)
EARLY = Takes("early", ("linear.default",))
CASES = [
    *(pytest.param(name, ["cpu"], id=name) for name in CODES),
    *(pytest.param(name, [EARLY, "cpu"], id=f"{name} behind another") for name in LINEAR),
]


@pytest.mark.slice(
    "weights-of-two-scales",
    "dequantised-values-read-twice",
    "tanh-gelus",
    "softmax-of-images",
    "freed-constants",
    "kernels-of-two-layers",
    "factors-of-products",
    "permutes-of-numbers",
    "narrow-ranges",
)
@pytest.mark.parametrize(("name", "plugins"), CASES)
def test_what_xnnpack_gets_wrong_is_left_to_others_and_computed(name, plugins):
    repro = quirks.load(name)
    module, calls = repro.model, [inputs for _, inputs in repro.steps]
    lowered = Lowerer(plugins).lower(module, calls[0])
    ledger, code = lowered.plan["forward"].ledger, CODES[name]
    verdicts = [entry.reasons[-1] for entry in ledger if entry.owner == "portable"]
    if code:
        assert code in {verdict.code for verdict in verdicts}
    assert all(verdict.text for verdict in verdicts if verdict.code == code)
    assert_agrees(lowered, module, *calls, *calls, tolerance=repro.tolerance)


FLOATS = {
    "a quantised weight for a float conv": model(
        lambda net, x: nn.functional.conv2d(x, floats(net.weight)), weight=eight_bits(4, 4, 3, 3)
    ),
    "an image resized by scales that are not the ratios of its sizes": model(
        lambda _, x: nn.functional.interpolate(x, scale_factor=(1.3, 0.7), mode="bilinear")
    ),
    "a norm of 2 dimensions": model(
        lambda net, x: net.norm(x[0, 0]) + x[0, 0], norm=nn.BatchNorm1d(8)
    ),
    "pools of images without a batch": model(
        lambda _, x: (
            nn.functional.max_pool2d(x[0], 2),
            nn.functional.avg_pool2d(x[0], 2),
            x[0].max(2, keepdim=True)[0],
        )
    ),
}


@pytest.mark.parametrize("name", FLOATS)
def test_a_program_computes_what_eager_does_over_several_calls(name):
    x = torch.randn(1, 4, 8, 8)
    lowered = Lowerer(["cpu"]).lower(FLOATS[name], (x,))
    assert_agrees(lowered, FLOATS[name], (x,), (x * 0.5,), (x * 3,), tolerance=1e-4)


def test_a_tanh_gelu_is_taken_where_approximations_are_allowed():
    plan = Lowerer([CpuPlugin(approximate=True)]).plan(nn.GELU("tanh"), (torch.randn(2, 8),))
    assert plan["forward"].owner("aten_gelu_default") == "CpuPlugin"


def test_a_bias_that_is_an_input_is_left_to_others():
    x, weight, bias = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    module = model(lambda net, x, bias: nn.functional.conv2d(x, net.weight, bias), weight=weight)
    plan = Lowerer(["cpu"]).plan(module, (x, bias))["forward"]
    verdict = plan.ledger["aten_convolution_default"].verdicts[0]
    assert verdict.code == "constraint"


@pytest.mark.parametrize("op", [torch.add, torch.sub])
def test_a_node_that_xnnpacks_check_fails_on_is_left_alone(op):
    def function(x):
        return op(x, x.exp(), alpha=x.shape[0]) + 1

    shapes = (({0: torch.export.Dim("rows", min=2, max=8)},),)
    lowered = Lowerer([CpuPlugin()]).lower(
        Function(function), (torch.randn(3, 4),), dynamic_shapes=shapes
    )
    plan, name = lowered.plan["forward"], f"aten_{op.__name__}_tensor"
    (verdict,) = plan.ledger[name].reasons
    assert verdict.code == "constraint"
    assert verdict.text.startswith("XNNPACK's check raised TypeError: unsupported operand type")
    assert plan.owner("aten_exp_default") == "CpuPlugin"
    assert_agrees(lowered, function, *[(torch.randn(rows, 4),) for rows in (3, 8, 2)])


class OneDimensional(nn.Module):
    """Convolutions that are called more than once, one of them with its norm."""

    def __init__(self):
        super().__init__()
        self.conv, self.back = nn.Conv1d(3, 3, 3, padding=1), nn.ConvTranspose1d(3, 3, 1)
        self.norm = nn.BatchNorm1d(3)
        nn.init.uniform_(self.norm.running_mean)

    def forward(self, x, y):
        first, second = (self.norm(self.conv(each)) for each in (x, y))
        return self.conv(first), self.back(self.back(second)), second


def test_a_bias_is_shared_by_layers_in_integers_and_in_floats():
    def both(net, x):
        weight = floats(net.integers, scale=0.001, zero=0)
        quantised = nn.functional.conv2d(floats(integers(x)), weight, net.conv.bias)
        return floats(integers(quantised)), net.conv(x)

    module = model(both, conv=nn.Conv2d(4, 4, 3)).eval()
    module.register_buffer("integers", eight_bits(4, 4, 3, 3))
    calls = [(torch.randn(1, 4, 6, 6),) for _ in range(2)]
    lowered = Lowerer(["cpu"]).lower(module, calls[0])
    layers = {e.node: e for e in lowered.plan["forward"].ledger if "convolution" in e.op}
    assert {(e.owner, e.precision) for e in layers.values()} == {
        ("cpu", "int8"),
        ("cpu", "float32"),
    }
    for inputs in calls:
        expected = module(*inputs)
        for result, wanted, most in zip(
            execute(lowered, inputs)[0], expected, (0.051, 1e-5), strict=True
        ):
            assert (result - wanted).abs().max() < most


def test_one_dimensional_convolutions_share_a_kernel_in_a_delegate():
    torch.manual_seed(0)
    module, x = OneDimensional().eval(), torch.randn(2, 3, 6)
    lowered = Lowerer(["cpu"]).lower(module, (x, x + 1))
    assert len(lowered.plan.partitions) == 1
    assert lowered.verify([(x, x + 1), (x * 2, x)]).calls == 3


def padded(x):
    return nn.functional.pad(floats(integers(x)), (1, 1))


BESIDE_INTEGERS = {
    "pad": lambda module, x: padded(x),
    "pad and relu": lambda module, x: padded(x).relu(),
    "pad and float layer": lambda module, x: module.conv(padded(x)),
    "pad and both": lambda module, x: floats(integers(padded(x))) + padded(x),
    "pads": lambda module, x: nn.functional.pad(padded(x), (0, 0, 1, 1)),
    "norm after": lambda module, x: module.norm(floats(integers(x[..., 0]))).relu(),
    "norm before": lambda module, x: floats(integers(module.norm(x[..., 0]).relu())),
}


@pytest.mark.slice("pad and both", "pads", "norm before")
@pytest.mark.parametrize("name", BESIDE_INTEGERS)
def test_floats_beside_integers_can_be_loaded_and_are_right(name):
    torch.manual_seed(0)
    module = model(BESIDE_INTEGERS[name], conv=nn.Conv2d(3, 3, 3), norm=nn.BatchNorm1d(3))
    nn.init.uniform_(module.norm.running_mean)
    x = torch.randn(2, 3, 6, 6)
    lowered = Lowerer(["cpu"]).lower(module.eval(), (x,))
    assert any(part.plugin == "cpu" for part in lowered.plan.partitions)
    assert lowered.verify([(x,), (x * 2,)]).calls == 3


@pytest.mark.parametrize("given", ["input", "computed"])
def test_a_partitioner_leaves_a_norm_whose_mean_is_no_weight(given):
    def network(module, x, mean):
        mean = mean if given == "input" else module.mean + 1
        return nn.functional.batch_norm(x, mean, module.variance)

    module = model(network, mean=torch.randn(3), variance=torch.rand(3) + 1)
    inputs = torch.randn(2, 3, 4), torch.randn(3)
    assert_agrees(by_partitioner(module, inputs, ["cpu"]), module, inputs)


@pytest.mark.slice("sigmoid")
@pytest.mark.parametrize("between", ["nothing", "relu", "sigmoid"])
def test_one_dimensional_convolutions_in_floats_beside_quantised_ones_are_left_to_others(between):
    torch.manual_seed(0)
    function = {"nothing": torch.clone, "relu": torch.relu, "sigmoid": torch.sigmoid}[between]

    def network(module, x):
        kernel = floats(module.own, 0.004, 0, -127, 127)
        before = function(nn.functional.conv1d(x, module.weight, padding=1))
        middle = floats(integers(nn.functional.conv1d(floats(integers(before)), kernel)))
        return nn.functional.conv1d(middle, module.weight)

    module = model(network, own=eight_bits(4, 4, 3), weight=torch.randn(4, 4, 3))
    x = torch.randn(1, 4, 9)
    lowered = Lowerer(["cpu"]).lower(module, (x,))
    assert lowered.plan["forward"].owner("aten_convolution_default_1") == "cpu"
    assert lowered.verify([(x,), (x * 2,)]).calls == 3


@pytest.mark.slice("bfloat16")
@pytest.mark.parametrize("scales", [torch.float32, torch.bfloat16])
def test_four_bits_are_exact_but_for_the_rounding_of_their_scales(scales):
    """XNNPACK keeps scales in bfloat16, as the README says; nothing else is rounded."""
    layer, x = nn.Linear(64, 8).eval(), torch.randn(5, 64)
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32), weight_scale_dtype=scales
    )
    quantize_(layer, config)
    lowered = Lowerer(["cpu"]).lower(layer, (x,))
    assert not lowered.plan["forward"].fallback
    rounded = copy.deepcopy(layer)
    rounded.weight.scale.copy_(layer.weight.scale.to(torch.bfloat16))
    assert_agrees(lowered, rounded, (x,), (x * 3,))


def test_quantised_weights_may_be_in_a_program_that_dynamo_traced():
    """Their values in its graph are subclasses of tensors, and of another shape env than ours."""
    layer, x = nn.Linear(64, 8).eval(), torch.randn(5, 64)
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32), weight_scale_dtype=torch.bfloat16
    )
    quantize_(layer, config)
    rows = torch.export.Dim("rows", max=9)
    with torch.no_grad():
        program = torch.export.export(layer, (x,), dynamic_shapes=({0: rows},), strict=True)
    lowered = Lowerer(["cpu"]).lower(program)
    assert not lowered.plan["forward"].fallback
    assert_agrees(lowered, layer, (x,), (x[:2] * 3,), tolerance=1e-3)


def test_quantisers_that_make_quantised_tensors_are_refused_by_the_plan():
    rounded = Function(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize())
    with pytest.raises(LoweringError, match=r"aten.quantize_per_tensor.default at small.py:\d"):
        Lowerer(["cpu"]).plan(rounded, (torch.randn(4, 4),))
