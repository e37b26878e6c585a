"""What XNNPACK would compute wrongly is left to others, and programs compute what eager does."""

import copy

import executorch.kernels.quantized  # noqa: F401  (what the plugin refuses runs there)
import pytest
import torch
from etdev_cpu.plugin import CpuPlugin
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from support.models.small import Function
from support.toys import Takes
from support.toys.runtime import assert_agrees, by_partitioner
from torch import nn
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    PerGroup,
    quantize_,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from etdev import Lowerer

ops = torch.ops.quantized_decomposed


class Calls(nn.Module):
    """A function of a module and its inputs, with tensors as buffers."""

    def __init__(self, function, **tensors):
        super().__init__()
        self.function = function
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def pt2e(module, x, **options):
    """A module's quantised program, calibrated on an input."""
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**options))
    prepared = prepare_pt2e(torch.export.export(module.eval(), (x,)).module(), quantizer)
    prepared(x)
    return convert_pt2e(prepared)


class Twice(nn.Module):
    """A layer that is called on its own output."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(torch.relu(self.layer(x)))


def integers(x, scale=0.05, zero=3, low=-128, high=127):
    return ops.quantize_per_tensor(x, scale, zero, low, high, torch.int8)


def floats(q, scale=0.05, zero=3, low=-128, high=127):
    return ops.dequantize_per_tensor(q, scale, zero, low, high, torch.int8)


def twice_linear():
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    return pt2e(Twice(nn.Linear(8, 8)), x), x


def twice_conv():
    torch.manual_seed(0)
    x = torch.randn(1, 4, 6, 6)
    return pt2e(Twice(nn.Conv2d(4, 4, 3, padding=1)), x), x


def weight_only():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    quantize_(module, Int8WeightOnlyConfig())
    return module, torch.randn(4, 8)


def odd_four_bits():
    torch.manual_seed(0)
    x = torch.randn(2, 7)
    options = {"is_per_channel": True, "is_dynamic": True, "weight_qmin": -8, "weight_qmax": 7}
    return pt2e(nn.Linear(7, 8), x, **options), x


def calls(function, x, **tensors):
    def model():
        torch.manual_seed(0)
        made = {name: make() for name, make in tensors.items()}
        return Calls(function, **made).eval(), x()

    return model


def two_norms():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.a, self.b = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
            for norm in (self.a, self.b):
                norm.running_mean.normal_()
                nn.init.normal_(norm.weight)

        def forward(self, x):
            return self.a(self.conv(x)) + self.b(self.conv(x * 2))

    torch.manual_seed(0)
    return Net().eval(), torch.randn(1, 4, 8, 8)


def square():
    return torch.randn(8, 8)


def image():
    return torch.randn(1, 4, 8, 8)


def kernel():
    return torch.randn(4, 4, 3, 3)


def eight_bits():
    return torch.randint(-128, 127, (8, 8), dtype=torch.int8)


def shared_activation(self, x):
    activation = floats(integers(x))
    output = nn.functional.linear(activation, floats(self.w, 0.01, 0))
    return floats(integers(output, 0.1), 0.1), activation + 1


MODELS = {
    "a static linear used twice": (twice_linear, None),
    "a static conv used twice": (twice_conv, "shared"),
    "an int8 weight alone": (weight_only, "constraint"),
    "4 bits, odd channels": (odd_four_bits, "channels"),
    "a narrow range": (calls(lambda _, x: floats(integers(x, 0.05, 3, -9, 9)), square), "range"),
    "another scale": (calls(lambda _, x: floats(integers(x), 0.1), square), "quantised"),
    "an activation read twice": (calls(shared_activation, square, w=eight_bits), None),
    "a weight of two scales": (
        calls(lambda s, x: x * floats(s.w, 0.1) + floats(s.w, 0.3), square, w=eight_bits),
        "shared",
    ),
    "a quantised weight for a float conv": (
        calls(
            lambda s, x: nn.functional.conv2d(x, floats(s.w)),
            image,
            w=lambda: torch.randint(-9, 9, (4, 4, 3, 3), dtype=torch.int8),
        ),
        None,
    ),
    "a conv's weight read by others": (
        calls(
            lambda s, x: nn.functional.conv2d(x, s.w)[..., :3, :3] + s.w * x.sum(),
            image,
            w=kernel,
        ),
        "shared",
    ),
    "a conv's weight transposed": (
        calls(
            lambda s, x: nn.functional.conv_transpose2d(nn.functional.conv2d(x, s.w), s.w),
            image,
            w=kernel,
        ),
        "shared",
    ),
    "two norms of one conv": (two_norms, "shared"),
    "max without keepdim": (calls(lambda _, x: x.max(3)[0], image), "arguments"),
    "a permute without dimensions": (
        calls(lambda _, x: x.permute(()), lambda: torch.tensor(2.0)),
        "arguments",
    ),
    "max along channels": (calls(lambda _, x: x.max(1, keepdim=True)[0], image), "arguments"),
    "pools of images without a batch": (
        calls(
            lambda _, x: (
                nn.functional.max_pool2d(x, 2),
                nn.functional.avg_pool2d(x, 2),
                x.max(2, keepdim=True)[0],
            ),
            lambda: image()[0],
        ),
        "arguments",
    ),
    "addmm with alpha and beta": (
        calls(
            lambda s, x: torch.addmm(s.b, x, s.w, beta=0.5, alpha=2),
            square,
            w=square,
            b=lambda: torch.randn(8),
        ),
        "arguments",
    ),
    "an image resized by scales that are not the ratios of its sizes": (
        calls(
            lambda _, x: nn.functional.interpolate(x, scale_factor=(1.3, 0.7), mode="bilinear"),
            image,
        ),
        "arguments",
    ),
    "a slice from before the start": (calls(lambda _, x: x[:, -100:3] * 2, square), "constraint"),
    "prelu of 2 dimensions": (lambda: (nn.PReLU(8).eval(), square()), None),
    "a norm of 2 dimensions": (
        calls(
            lambda s, x: nn.functional.batch_norm(x, s.mean, s.var, s.mean, s.var) + x,
            square,
            mean=lambda: torch.randn(8),
            var=lambda: torch.rand(8) + 1,
        ),
        "arguments",
    ),
    "7 dimensions": (calls(lambda _, x: x.view(1, 2, 2, 2, 2, 2, 2) + 1, square), "rank"),
    "tanh GELU": (
        calls(lambda _, x: nn.functional.gelu(x, approximate="tanh"), square),
        "precision",
    ),
}


# With and without another plugin that takes linear layers first, where there is one.
LINEAR = (
    *("a static linear used twice", "an int8 weight alone", "4 bits, odd channels"),
    "an activation read twice",
)
CASES = [
    *((name, ["cpu"]) for name in MODELS),
    *((name, [Takes("early", ("linear.default",)), "cpu"]) for name in LINEAR),
]


@pytest.mark.parametrize(("name", "plugins"), CASES)
def test_a_program_computes_what_eager_does_over_several_calls(name, plugins):
    make, code = MODELS[name]
    module, x = make()
    lowered = Lowerer(plugins).lower(module, (x,))
    ledger = lowered.plan["forward"].ledger
    verdicts = [entry.reasons[-1] for entry in ledger if entry.owner == "portable"]
    if code:
        assert code in {verdict.code for verdict in verdicts}
    assert all(verdict.text for verdict in verdicts if verdict.code == code)
    assert_agrees(lowered, module, *((x * s,) for s in (1, 0.5, 3)), tolerance=1e-4)


def test_a_tanh_gelu_is_taken_where_approximations_are_allowed():
    from etdev_cpu.plugin import CpuPlugin

    plan = Lowerer([CpuPlugin(approximate=True)]).plan(nn.GELU("tanh"), (torch.randn(2, 8),))
    assert plan["forward"].owner("aten_gelu_default") == "CpuPlugin"


def test_a_bias_that_is_an_input_is_left_to_others():
    x, weight, bias = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    module = Calls(lambda s, x, bias: nn.functional.conv2d(x, s.w, bias), w=weight)
    plan = Lowerer(["cpu"]).plan(module, (x, bias))["forward"]
    verdict = plan.ledger["aten_convolution_default"].verdicts[0]
    assert verdict.code == "constraint"


@pytest.mark.parametrize("op", [torch.add, torch.sub])
def test_a_node_that_xnnpacks_check_fails_on_is_left_alone(op):
    def model(x):
        return op(x, x.exp(), alpha=x.shape[0]) + 1

    shapes = (({0: torch.export.Dim("rows", min=2, max=8)},),)
    lowered = Lowerer([CpuPlugin()]).lower(
        Function(model), (torch.randn(3, 4),), dynamic_shapes=shapes
    )
    plan, name = lowered.plan["forward"], f"aten_{op.__name__}_tensor"
    (verdict,) = plan.ledger[name].reasons
    assert verdict.code == "constraint"
    assert verdict.text.startswith("XNNPACK's check raised TypeError: unsupported operand type")
    assert plan.owner("aten_exp_default") == "CpuPlugin"
    assert_agrees(lowered, model, *[(torch.randn(rows, 4),) for rows in (3, 8, 2)])


class WritesBias(nn.Module):
    """A layer whose bias is written."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x):
        y = self.layer(x)
        self.layer.bias.add_(1)
        return y, x.exp() + 1


def test_a_linear_layer_whose_bias_is_written_is_left_to_others():
    """XNNPACK's runtime crashes on it, and on the transpose of its weight."""
    x = torch.randn(3, 4)
    lowered = Lowerer(["cpu"]).lower(WritesBias(), (x,))
    assert lowered.plan["forward"].owner("aten_exp_default") == "cpu"
    assert lowered.verify([(x,), (x + 1,)]).calls == 3


class ReadsWeights(nn.Module):
    """Layers whose weights and biases other ops read, too."""

    def __init__(self):
        super().__init__()
        self.layer, self.conv = nn.Linear(4, 4), nn.Conv2d(3, 3, 1)

    def forward(self, x):
        image = self.conv(x[None, :, :, None])
        return self.layer(x), self.layer.weight * x[:1], image * self.conv.bias[:1], image


def test_what_a_layer_packs_is_not_read_by_other_ops_of_its_delegate():
    """The runtime frees it, and the process dies of SIGSEGV if the program was a file."""
    x = torch.randn(3, 4)
    lowered = Lowerer(["cpu"]).lower(ReadsWeights(), (x,))
    plan = lowered.plan["forward"]
    assert {plan.owner("aten_linear_default"), plan.owner("aten_convolution_default")} == {"cpu"}
    assert "aten_mul_tensor" in plan.fallback
    (verdict,) = plan.ledger["aten_mul_tensor"].reasons
    assert verdict.code == "shared"
    assert lowered.verify([(x,), (x + 1,)]).calls == 3


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


def test_one_dimensional_convolutions_share_a_kernel_in_a_delegate():
    torch.manual_seed(0)
    module, x = OneDimensional().eval(), torch.randn(2, 3, 6)
    lowered = Lowerer(["cpu"]).lower(module, (x, x + 1))
    assert len(lowered.plan.partitions) == 1
    assert lowered.verify([(x, x + 1), (x * 2, x)]).calls == 3


def test_one_dimensional_layers_of_two_dynamic_sizes_are_left_to_others():
    torch.manual_seed(0)

    class Dynamic(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv1d(3, 3, 3), nn.BatchNorm1d(3)

        def forward(self, x):
            return self.conv(x).relu(), self.norm(x), x.unsqueeze(-1) * 2

    sizes = ({0: torch.export.Dim("b", min=1, max=4), 2: torch.export.Dim("t", min=4, max=9)},)
    x = torch.randn(2, 3, 6)
    lowered = Lowerer(["cpu"]).lower(Dynamic().eval(), (x,), dynamic_shapes=sizes)
    assert lowered.plan["forward"].owner("aten_mul_tensor") == "cpu"
    assert lowered.verify([(x,), (torch.randn(4, 3, 9),), (torch.randn(1, 3, 4),)]).calls >= 3


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


@pytest.mark.parametrize("name", BESIDE_INTEGERS)
def test_floats_beside_integers_can_be_loaded_and_are_right(name):
    torch.manual_seed(0)
    module = Calls(BESIDE_INTEGERS[name])
    module.conv, module.norm = nn.Conv2d(3, 3, 3), nn.BatchNorm1d(3)
    nn.init.uniform_(module.norm.running_mean)
    x = torch.randn(2, 3, 6, 6)
    lowered = Lowerer(["cpu"]).lower(module.eval(), (x,))
    assert any(part.plugin == "cpu" for part in lowered.plan.partitions)
    assert lowered.verify([(x,), (x * 2,)]).calls == 3


class Norms(nn.Module):
    """Batch norms that share weights or have none, after layers and without."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.BatchNorm2d(3, affine=False) for _ in range(2))
        self.third, self.conv = nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)
        for norm in (self.first, self.second, self.third):
            nn.init.uniform_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 1)
        nn.init.uniform_(self.third.weight)

    def other(self, x, bias=None):
        norm = nn.functional.batch_norm
        return norm(x, self.first.running_mean, self.third.running_var, self.third.weight, bias)

    def forward(self, x):
        after = self.first(self.conv(x)), self.second(self.conv(x + 1)), self.other(self.conv(x))
        alone = self.first(x), self.second(x), self.third(x), self.other(x, self.third.bias)
        return *after, *alone, self.third(self.second(x * 2))


def test_batch_norms_have_their_own_weights_in_a_delegate():
    torch.manual_seed(0)
    module, x = Norms().eval(), torch.randn(2, 3, 4, 4)
    lowered = Lowerer(["cpu"]).lower(module, (x,))
    plan = lowered.plan["forward"]
    # The convolution has one norm folded into it, and a norm of a norm can't be compiled.
    assert sum("batch_norm" in name for name in plan.fallback) == 3
    assert lowered.verify([(x,), (x * 2,)]).calls == 3


@pytest.mark.parametrize("given", ["input", "computed"])
def test_a_partitioner_leaves_a_norm_whose_mean_is_no_weight(given):
    def network(module, x, mean):
        mean = mean if given == "input" else module.mean + 1
        return nn.functional.batch_norm(x, mean, module.variance)

    module = Calls(network, mean=torch.randn(3), variance=torch.rand(3) + 1)
    inputs = torch.randn(2, 3, 4), torch.randn(3)
    assert_agrees(by_partitioner(module, inputs, ["cpu"]), module, inputs)


def test_one_dimensional_convolutions_share_integers_as_a_kernel():
    torch.manual_seed(0)
    own = torch.randint(-127, 127, (4, 4, 3), dtype=torch.int8)

    def network(module, x):
        kernel = floats(module.own, 0.004, 0, -127, 127)
        for _ in range(2):
            x = nn.functional.conv1d(floats(integers(x)), kernel)
        return floats(integers(x))

    x = torch.randn(1, 4, 9)
    lowered = Lowerer(["cpu"]).lower(Calls(network, own=own), (x,))
    assert len(lowered.plan.partitions) == 1
    assert lowered.verify([(x,), (x * 2,)]).calls == 3


@pytest.mark.parametrize("between", ["nothing", "relu", "sigmoid"])
def test_one_dimensional_convolutions_in_floats_beside_quantised_ones_are_left_to_others(between):
    torch.manual_seed(0)
    function = {"nothing": torch.clone, "relu": torch.relu, "sigmoid": torch.sigmoid}[between]
    own = torch.randint(-127, 127, (4, 4, 3), dtype=torch.int8)

    def network(module, x):
        kernel = floats(module.own, 0.004, 0, -127, 127)
        before = function(nn.functional.conv1d(x, module.weight, padding=1))
        middle = floats(integers(nn.functional.conv1d(floats(integers(before)), kernel)))
        return nn.functional.conv1d(middle, module.weight)

    module, x = Calls(network, own=own, weight=torch.randn(4, 4, 3)), torch.randn(1, 4, 9)
    lowered = Lowerer(["cpu"]).lower(module, (x,))
    assert lowered.plan["forward"].owner("aten_convolution_default_1") == "cpu"
    assert lowered.verify([(x,), (x * 2,)]).calls == 3


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


@pytest.mark.parametrize(("dtype", "group"), [(torch.int8, 32), (torch.int4, 16)])
def test_groups_that_xnnpack_has_no_kernel_for_are_left_to_others(dtype, group):
    layer, x = nn.Linear(64, 8).eval(), torch.randn(5, 64)
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=dtype, weight_granularity=PerGroup(group)
    )
    quantize_(layer, config)
    lowered = Lowerer(["cpu"]).lower(layer, (x,))
    assert lowered.plan["forward"].fallback
    assert_agrees(lowered, layer, (x,), (x * 3,))
