"""Series and volumes run in XNNPACK's layers of images where it has no others."""

import pytest
import torch
from etdev_cpu.plugin import CpuPlugin
from support.models.small import Function
from support.quirks.quantised import pt2e
from support.toys.runtime import assert_agrees, by_partitioner
from torch import nn
from torch.export import Dim

from etdev import Lowerer
from etdev.graph.nodes import op_name

LAYERS = ("aten.convolution.default", "aten._native_batch_norm_legit_no_training.default")


def series():
    """Layers of speech: strided, in groups, dilated and transposed."""
    layers = nn.Conv1d(6, 8, 5, padding=2), nn.BatchNorm1d(8), nn.ReLU()
    layers += nn.Conv1d(8, 8, 3, groups=8, dilation=2, padding=2), nn.BatchNorm1d(8, affine=False)
    net = nn.Sequential(*layers, nn.ConvTranspose1d(8, 4, 4, 2, 1))
    for norm in (net[1], net[4]):
        nn.init.normal_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    return net.eval()


def volumes():
    layers = nn.Conv3d(2, 6, 3, padding=1), nn.BatchNorm3d(6), nn.ReLU(), nn.MaxPool3d((1, 2, 2))
    net = nn.Sequential(*layers)
    nn.init.normal_(net[1].running_mean)
    return net.eval()


def owners(lowered):
    return {entry.owner for entry in lowered.plan["forward"].ledger if entry.op in LAYERS}


@pytest.mark.parametrize("fixed", [False, True])
def test_series_of_any_batch_and_length_are_xnnpacks(fixed):
    net = series()
    shapes = None if fixed else ({0: Dim("batch", min=1, max=4), 2: Dim("length", min=4, max=40)},)
    sizes = [(2, 10)] if fixed else [(2, 10), (4, 40), (1, 4), (3, 17), (1, 40), (2, 10)]
    calls = [(torch.randn(batch, 6, length),) for batch, length in sizes]
    lowered = Lowerer(["cpu"]).lower(net, calls[0], dynamic_shapes=shapes)
    assert owners(lowered) == {"cpu"}
    assert_agrees(lowered, net, *calls)


@pytest.mark.suite
def test_a_partitioner_takes_such_series_too():
    net, calls = series(), [(torch.randn(b, 6, n),) for b, n in ((2, 10), (4, 40), (1, 5))]
    shapes = ({0: Dim("batch", min=1, max=4), 2: Dim("length", min=4, max=40)},)
    assert_agrees(by_partitioner(net, calls[0], ["cpu"], dynamic_shapes=shapes), net, *calls)


def test_norms_of_volumes_are_xnnpacks_and_pools_are_few_ops():
    net = volumes()
    calls = [(torch.randn(1, 2, 4, 8, 6),) for _ in range(3)]
    lowered = Lowerer(["cpu"]).lower(net, calls[0])
    assert owners(lowered) == {"cpu"}
    left = {entry.op for entry in lowered.plan["forward"].ledger if entry.owner == "portable"}
    assert left <= {"aten.slice_copy.Tensor"}
    assert_agrees(lowered, net, *calls)


@pytest.mark.slice("True-float16", "False-float32")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("affine", [False, True])
def test_norms_of_rows_are_xnnpacks(dtype, affine):
    net = nn.Sequential(nn.BatchNorm1d(6, affine=affine), nn.Linear(6, 4), nn.BatchNorm1d(4))
    for norm in (net[0], net[2]):
        nn.init.normal_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    net = net.eval().to(dtype)
    calls = [(torch.randn(batch, 6).to(dtype),) for batch in (3, 1, 8)]
    shapes = ({0: Dim("batch", min=1, max=8)},)
    lowered = Lowerer(["cpu"]).lower(net, calls[0], dynamic_shapes=shapes)
    assert owners(lowered) == {"cpu"}
    # That of a layer is folded into it, without views between them.
    assert len(lowered.plan["forward"].partitions) == 2
    assert_agrees(lowered, net, *calls, tolerance=1e-5 if dtype is torch.float32 else 1e-2)


@pytest.mark.suite
def test_a_bias_that_a_kernel_reads_too_stays_one_of_the_layers_weights():
    # Both biases are zeros, which are stored once; of the first layer, kernels compute all.
    first, second = (nn.MultiheadAttention(64, 4, batch_first=True).eval() for _ in range(2))
    query = nn.Parameter(torch.randn(1, 20, 64))

    def attend(x):
        return second(first(query, x, x, need_weights=False)[0], x, x, need_weights=False)[0]

    calls = [(torch.randn(1, 36, 64),) for _ in range(2)]
    module = Function(attend)
    module.first, module.second, module.query = first, second, query
    lowered = Lowerer(["cpu"]).lower(module, calls[0])
    assert_agrees(lowered, module, *calls)
    products = [n for n in lowered.lowering.programs["forward"].graph.nodes if n.args]
    assert any("addmm" in op_name(node) for node in products)


def test_images_in_float16_stay_layers_of_float16():
    """Another plugin's formula for float16 is not taken before XNNPACK is asked."""
    torch.manual_seed(0)
    layers = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)
    module, given = nn.Sequential(*layers).eval().half(), (torch.randn(1, 4, 9, 9).half(),)
    lowered = Lowerer(["cpu"]).lower(module, given)
    assert {(e.owner, e.precision) for e in lowered.plan["forward"].ledger} == {("cpu", "float16")}
    assert_agrees(lowered, module, given, tolerance=1e-2)


class Pooled(nn.Module):
    """A convolution whose means a linear layer reads."""

    def __init__(self, dims, keeps):
        super().__init__()
        self.dims, self.keeps = dims, keeps
        self.layer, self.head = nn.Conv2d(3, 16, 3, 2, 1), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.layer(x).relu().mean(self.dims, self.keeps).flatten(1))


@pytest.mark.slice("dims2-True", "dims1-False")
@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("dims", [(2, 3), (-1, -2), [3, 2]])
def test_means_of_images_are_xnnpacks_in_a_batch_that_grows(dims, quantised):
    torch.manual_seed(0)
    module, given = Pooled(dims, keeps=dims == (2, 3)).eval(), torch.randn(2, 3, 12, 12)
    shapes = ({0: Dim("batch", min=1, max=6)},)
    module = pt2e(module, given, shapes) if quantised else module
    lowered = Lowerer(["cpu"]).lower(module, (given,), dynamic_shapes=shapes)
    left = {entry.op for entry in lowered.plan["forward"].ledger if entry.owner == "portable"}
    assert left <= {"aten.view_copy.default", "aten.sym_size.int"}
    calls = [(torch.randn(batch, 3, 12, 12),) for batch in (2, 1, 6, 3, 6)]
    # One step of an integer of the last quantiser.
    assert_agrees(lowered, module, *calls, tolerance=0.02 if quantised else 1e-5)


EDGES = torch.tensor([0.0, -0.0, 1e-7, -1e-7, 30.0, -100.0, torch.inf, -torch.inf, torch.nan])


def edged(*shape):
    """Random numbers, among which some are huge, infinite or NaN."""
    value = torch.randn(shape)
    value.view(-1)[: len(EDGES)] = EDGES
    return value


DECONVOLUTIONS = {
    "doubled": nn.ConvTranspose2d(4, 3, 2, 2),
    "overlapping": nn.ConvTranspose2d(4, 3, 4, 2, 1),
    "uneven": nn.ConvTranspose2d(4, 3, (6, 2), (3, 1), (2, 0), (1, 0), bias=False),
    "many channels": nn.ConvTranspose2d(32, 20, 4, 2, 1, 1),
    "taps that differ": nn.ConvTranspose2d(4, 3, 3, 2, 1, 1),
    "uneven taps": nn.ConvTranspose2d(4, 3, (7, 5), (4, 2), (1, 2)),
    "added": nn.ConvTranspose2d(4, 3, 2, 2, output_padding=1),
    "series": nn.ConvTranspose1d(4, 3, 8, 4, 2),
    "series of taps that differ": nn.ConvTranspose1d(4, 3, 5, 2, 2, 1),
}


@pytest.mark.slice("overlapping", "uneven taps")
@pytest.mark.parametrize("name", DECONVOLUTIONS)
def test_strided_transposed_convolutions_are_plain_ones(name):
    net = DECONVOLUTIONS[name].eval()
    sizes = [(9, 7), (2, 12), (5, 5)] if net.weight.dim() == 4 else [(9,), (3,), (13,)]
    shapes = {dim: Dim(f"d{dim}", min=2, max=16) for dim in range(2, net.weight.dim())}
    shapes |= {0: Dim("batch", min=1, max=3)}
    calls = [
        (edged(batch, net.in_channels, *s),) for batch, s in zip((2, 1, 3), sizes, strict=True)
    ]
    lowered = Lowerer(["cpu"]).lower(net, calls[0], dynamic_shapes=(shapes,))
    assert owners(lowered) == {"cpu"}
    nodes = lowered.lowering.programs["forward"].graph.nodes
    assert {node.args[6] for node in nodes if op_name(node) == LAYERS[0]} == {False}
    assert_agrees(lowered, net, *calls)
    fixed = Lowerer(["cpu"]).lower(net, calls[0])
    assert (len(fixed.plan["forward"].partitions), fixed.plan["forward"].fallback) == (1, ())
    assert_agrees(fixed, net, calls[0])
    # The weight is stored once.
    assert len(fixed.to_executorch().buffer) < 4 * net.weight.numel() + 12_000


KEPT = {
    "taps missing": nn.ConvTranspose2d(4, 3, 2, 3),
    "groups": nn.ConvTranspose2d(4, 4, 2, 2, groups=2),
    "dilated": nn.ConvTranspose2d(4, 3, 2, 2, dilation=2),
    "more outputs": nn.ConvTranspose2d(4, 32, 2, 2),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_transposed_convolutions_stay(name):
    net, given = KEPT[name].eval(), (torch.randn(1, 4, 5, 6),)
    lowered = Lowerer(["cpu"]).lower(net, given)
    assert [entry.op for entry in lowered.plan["forward"].ledger] == [LAYERS[0]]
    assert_agrees(lowered, net, given)


class ByDefault(nn.Module):
    """An ELU without an alpha."""

    def forward(self, x):
        return torch._C._nn.elu(x)


POOLS = {
    "plain": nn.AvgPool2d(3, 1, 1),
    "uneven": nn.AvgPool2d((3, 2), None, (1, 0), count_include_pad=True),
    "series": nn.AvgPool1d(3, 2, 1),
    "elu": nn.ELU(0.7),
    "elu by default": ByDefault(),
    "selu": nn.SELU(),
    "celu": nn.CELU(2.0),
    "softmax": nn.Sequential(nn.Conv2d(6, 5, 1), nn.Softmax(1)).eval(),
    "softmax of series": nn.Softmax(-2),
}


@pytest.mark.slice("plain", "elu by default")
@pytest.mark.parametrize("name", POOLS)
def test_padded_pools_elus_and_softmaxes_of_channels_are_xnnpacks(name):
    size = (9,) if "series" in name else (8, 9)
    shapes = ({0: Dim("batch", min=1, max=4)},)
    calls = [(torch.randn(batch, 6, *size),) for batch in (2, 1, 4)]
    lowered = Lowerer(["cpu"]).lower(POOLS[name], calls[0], dynamic_shapes=shapes)
    left = {entry.op for entry in lowered.plan["forward"].ledger if entry.owner == "portable"}
    views = {"aten.view_copy.default", "aten.unsqueeze_copy.default", "aten.squeeze_copy.dims"}
    assert left <= views | {"aten.sym_size.int"}
    calls += [(edged(3, 6, *size),)] if "elu" in name else []
    assert_agrees(lowered, POOLS[name], *calls)


class Bicubic(nn.Module):
    """Resizing by given options."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return nn.functional.interpolate(x, mode="bicubic", **self.options)


BICUBIC = {
    "fourfold": Bicubic(scale_factor=4.0),
    "to a size": Bicubic(size=(11, 40), align_corners=True),
    "by other factors": Bicubic(scale_factor=(1.7, 0.6)),
}


@pytest.mark.slice("by other factors")
@pytest.mark.parametrize("name", BICUBIC)
def test_bicubic_resizing_is_two_linear_layers(name):
    calls = [(torch.randn(2, 3, 16, 20) * scale,) for scale in (1, 1e-3, 1e3)]
    lowered = Lowerer(["cpu"]).lower(BICUBIC[name], calls[0])
    plan = lowered.plan["forward"]
    assert (len(plan.partitions), plan.fallback) == (1, ())
    assert plan.caveats
    for call in calls:
        assert_agrees(lowered, BICUBIC[name], call, tolerance=1e-5 * call[0].abs().max().item())


@pytest.mark.slice("exact")
@pytest.mark.parametrize("nan", ["exact", "ignored"])
def test_bicubic_resizing_of_dynamic_sizes_or_with_exact_infinities_gathers(nan):
    x, shapes = torch.randn(1, 2, 9, 8), ({2: Dim("height", min=2, max=16)},)
    net, dynamic = BICUBIC["fourfold"], shapes if nan == "ignored" else None
    lowered = Lowerer([CpuPlugin(nan=nan)]).lower(net, (x,), dynamic_shapes=dynamic)
    assert "aten.linear.default" not in {entry.op for entry in lowered.plan["forward"].ledger}
    assert_agrees(lowered, net, (x,))
