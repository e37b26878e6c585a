"""Decompositions of ops that no table of torch decomposes, or portable kernels get wrong."""

import math
import runpy
from functools import partial

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees, by_partitioner, execute
from torch import nn
from torchao.quantization import IntxWeightOnlyConfig, quantize_

from etdev import Lowerer
from etdev.errors import LoweringError
from etdev.portable.decompositions import linalg, order, reductions

layers, aten = nn.functional, torch.ops.aten
NUMBERS = torch.tensor([0, -0.0, 1, -1, 2.5, -3.75, 7, 60, -12.5, 1e-8, math.inf, math.nan])


def calling(*functions):
    """Return a model that calls several functions, so that one .pte has them all."""
    return Function(lambda *inputs: [function(*inputs) for function in functions])


def agree(functions, *calls, plugins=()):
    module = calling(*functions)
    assert_agrees(Lowerer(list(plugins)).lower(module, calls[0]), module, *calls)


class Without:
    """A fake: torch's ops without some; a torch that lacks them isn't installed beside this one."""

    def __init__(self, *names):
        self.names = names

    def __getattr__(self, name):
        if name in self.names:
            raise AttributeError(name)
        return getattr(aten, name)


def test_the_formula_of_an_op_that_this_torch_lacks_is_left_out(monkeypatch):
    monkeypatch.setattr(torch.ops, "aten", Without("cholesky"))
    fresh = runpy.run_path(linalg.__file__)["FORMULAS"]
    assert {str(op) for op in linalg.FORMULAS} - {"aten.cholesky.default"} == {*map(str, fresh)}


def test_the_inverse_of_the_error_function():
    agree([torch.signbit, lambda x: torch.erfinv(x / 8)], (NUMBERS,), (NUMBERS.flip(0) / 3,))


@pytest.mark.slice("float32", "float16")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_softmax_of_nothing_but_minus_infinity_is_zero(dtype):
    least, most = torch.finfo(dtype).min, torch.finfo(dtype).max
    rows = [[-math.inf, -math.inf, -math.inf], [least, least, least], [least, -math.inf, -math.inf]]
    rows += [[-1, -math.inf, least], [most, 0, least], [math.inf, 1, 2], [math.nan, 1, 2]]
    x = torch.tensor(rows, dtype=dtype)
    softmax = [partial(aten._safe_softmax.default, dim=dim) for dim in (-1, 0)]
    agree(softmax, (x,), (x.flip(0),), (x[:, [2, 0, 1]],))
    # XNNPACK's clamp of NaN is another number in halves, as the ledger says.
    if dtype != torch.float16:
        agree(softmax, (x,), (x.flip(0),), plugins=["cpu"])


def test_attention_does_not_compare_each_score_with_infinity():
    query = torch.randn(1, 2, 7, 8)
    plan = Lowerer(["cpu"]).plan(Function(layers.scaled_dot_product_attention), (query,) * 3)
    assert {entry.owner for entry in plan["forward"].ledger} == {"cpu"}


def test_a_tanh_gelu_is_written_so_that_backends_take_it():
    gelu = partial(layers.gelu, approximate="tanh")
    x = torch.cat([NUMBERS, 10.0 ** torch.arange(-6, 38), -(10.0 ** torch.arange(-6, 38))])
    agree([gelu], (x,), (-x,), plugins=["cpu"])
    agree([gelu], (x,), (-x,))
    plan = Lowerer(["cpu"]).plan(Function(gelu), (x,))
    assert {entry.owner for entry in plan["forward"].ledger} == {"cpu"}
    # In halves each piece would round.
    halves = Lowerer([]).plan(Function(gelu), (x.half(),))
    assert [entry.op for entry in halves["forward"].ledger] == ["aten.gelu.default"]


def test_signs_and_lengths():
    x, y = (grid.clone() for grid in torch.meshgrid(NUMBERS, NUMBERS[:-1], indexing="ij"))
    agree([torch.copysign, torch.hypot], (x, y), (-x, -y))


def test_numbers_are_found_among_many_that_have_nan_among_them():
    values = torch.tensor([2.0, -math.inf, 5, math.nan, -1, 3, 3, -8, 0.5, math.inf, 4])
    calls = [(torch.tensor(x),) for x in ([3, math.nan, 4.5, -math.inf, 6], [1, math.inf, 2, 5, 4])]
    agree([lambda x: torch.isin(x, values.repeat(3))], *calls)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("descending", [False, True])
def test_equal_values_keep_their_order(dtype, descending):
    x = torch.randint(0, 3, (3, 8)).to(dtype)
    if dtype.is_floating_point:
        x[0, 2] = x[0, 5] = x[1, 0] = math.nan
    for dim in (0, 1):
        expected = torch.sort(x, dim=dim, descending=descending, stable=True)
        torch.testing.assert_close(order.sort(x, dim, descending), (*expected,), equal_nan=True)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scattered_values_are_reduced(reduce, include_self):
    for dtype in (torch.float32, torch.int64):
        x, source = (torch.randint(-5, 5, (4, 6)).to(dtype) for _ in range(2))
        for dim, limit in ((0, 4), (1, 6)):
            index = torch.randint(0, limit, (3, 5))
            expected = x.scatter_reduce(dim, index, source, reduce, include_self=include_self)
            result = reductions.scatter_reduce(
                x, dim, index, source, reduce, include_self=include_self
            )
            torch.testing.assert_close(result, expected)


def test_channels_are_dropped_by_chance():
    drop, x = nn.Dropout2d(0.25).train(), torch.ones(20, 20, 2, 3)
    (dropped,), _ = execute(Lowerer([]).lower(drop, (x,)), (x,), (x,))
    scale = dropped[:, :, :1, :1]
    torch.testing.assert_close(dropped, scale.expand_as(x))
    assert {round(value, 4) for value in scale.flatten().tolist()} == {0, round(4 / 3, 4)}
    assert 0.6 < (scale > 0).float().mean() < 0.9


def test_bytes_are_shifted_out():
    x = torch.tensor([0, 40, 160, 255], dtype=torch.uint8)
    agree([lambda x: (x >> x, x >> 8, x >> 3, x << x)], (x,), (x // 20,))


def test_integers_beside_numbers_that_are_none():
    functions = [
        lambda x: layers.pairwise_distance(x, x.flip(0)),
        lambda x: layers.triplet_margin_loss(x, x.flip(0), x.flip(1)),
        lambda x: aten.sub.Scalar(aten.add.Scalar(x, 1.5, 2), 1),
        lambda x: (x.cfloat(), x.bool().cdouble()),
    ]
    x = torch.arange(40, 46, dtype=torch.uint8).reshape(2, 3)
    agree(functions, (x,), (x * 5,))


def test_numbers_beside_tensors_without_dimensions():
    def computed(*numbers):
        wholes = [(x + 1, 1 - x, x * 2, x // 2, x / 2, x > 1) for x in numbers]
        return [*wholes, *((x + 0.25, 0.25 - x, x / 0.5, x < 0.1) for x in numbers)]

    dtypes = torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float64
    calls = [[torch.tensor(value).to(dtype) for dtype in dtypes] for value in (3, 200)]
    agree([computed], *calls)


@pytest.mark.suite
def test_powers_with_large_exponents_overflow_as_in_pytorch():
    x = torch.tensor([-3, -2, -1, 0, 1, 2, 3, 10**9 + 7])
    y = torch.tensor([65537, 2**33, 2**33 + 1, 2**62, 2**62 + 1, 2**63 - 1, 64, 65536])
    functions = [
        lambda x, y: x**y,
        lambda x, y: x.to(torch.int32) ** y.clamp(max=2**31 - 1).to(torch.int32),
    ]
    agree(functions, *((x, y.roll(places)) for places in range(8)))


def test_a_pool_has_the_nan_of_its_window():
    x = torch.randn(2, 3, 8, 9)
    nan = x.clone()
    nan[0, 0, 2, 3] = nan[1, 2, 0, 0] = nan[1, 1, 7, 8] = nan[0, 1, 3:6, 2:7] = math.nan
    nan[0, 0, 0, 0] = math.inf
    functions = [
        lambda x: layers.max_pool2d(x, 2),
        lambda x: layers.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
        lambda x: layers.max_pool2d(x.double(), 2, 1, 1, 2),
        lambda x: layers.max_pool1d(x[0], 2),
    ]
    agree(functions, (x,), (nan,))


@pytest.mark.slice("float32")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_floats_at_their_edges(dtype):
    edges = torch.tensor([0.0, -0.0, 1, -1, math.nan, math.inf, -math.inf, 2.5, -3.75], dtype=dtype)
    x, y = (grid.clone() for grid in torch.meshgrid(edges, edges, indexing="ij"))
    functions = [
        *(torch.remainder, torch.fmod, lambda x, y: torch.sign(x), lambda x, y: x // 2.5),
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        lambda x, y: torch.cdist(x.float(), y.float(), p=0.0),
        lambda x, y: x[:, :0] @ y[:0],
    ]
    agree(functions, (x, y), (y, x))


def test_quotients_of_multiples_are_whole_as_in_eager():
    steps = torch.cat([torch.arange(-60, 60) * step for step in (0.1, 0.3, 0.7)])
    x, y = (g.clone() for g in torch.meshgrid(steps, torch.tensor([0.1, -0.7]), indexing="ij"))
    module = calling(torch.floor_divide, lambda x, y: x // 0.3, lambda x, y: (x // 1e-3).long())
    (outputs,) = execute(Lowerer([]).lower(module, (x, y)), (x, y))
    for output, value in zip(outputs, module(x, y), strict=True):
        assert torch.equal(output, value)


def test_tensors_without_dimensions():
    functions = [
        lambda x: x.sum(0),
        lambda x: x.cumsum(0),
        lambda x: x.logsumexp(0),
        lambda x: x.unfold(0, 1, 1),
        lambda x: x.sort(),
    ]
    agree(functions, (torch.tensor(2.5),), (torch.tensor(-1.0),))
    agree([torch.unbind_copy, lambda x: torch.unbind_copy(x.reshape(2, 2), 1)], (torch.randn(4),))


def test_doubles_are_summed_over_a_dynamic_size():
    inputs = (torch.randn(3, 4, dtype=torch.float64),)
    function, shapes = (
        Function(lambda x: x.sum(0)),
        {"inputs": ({0: torch.export.Dim("n", max=8)},)},
    )
    lowered = Lowerer([]).lower(function, inputs, dynamic_shapes=shapes)
    assert_agrees(lowered, function, *((x.repeat(n, 1),) for x in inputs for n in (2, 1)))


@pytest.mark.suite
def test_doubles_stay_doubles():
    functions = [
        lambda x: x.sum(1),
        lambda x: x.log_softmax(2),
        lambda x: layers.layer_norm(x, (7,)),
        lambda x: (
            x * 0.1,
            x + 1e300,
            0.3 - x,
            x / x[0, 0, 0].item(),
            torch.where(x > 0.1, x, 0.1),
        ),
        lambda x: torch.addmm(x[0, :, :6], x[0], x[1].T, beta=0.1, alpha=0.3),
        lambda x: (layers.gelu(x), layers.elu(x, 0.1), torch.deg2rad(x)),
        lambda x: (torch.remainder(x, 0.3), x % x[0], x.remainder(-2.5)),
        lambda x: (layers.group_norm(x, 3), layers.group_norm(x, 2, x[0, :, 0], x[1, :, 0], 0.1)),
        lambda x: layers.adaptive_avg_pool2d(x, (4, 3)),
        # Sums within a formula.
        lambda x: torch.var_mean(x, 1, correction=1.3),
        lambda x: torch.cond(
            x.sum() > 0, lambda x: x.var(1, correction=2), lambda x: x.sum(1), (x,)
        ),
    ]
    module, x = calling(*functions), torch.randn(5, 6, 7, dtype=torch.float64)
    lowered = Lowerer([]).lower(module, (x,))
    assert_agrees(lowered, module, (x,), tolerance=1e-12)
    assert lowered.verify().calls >= 3


def test_products_of_bytes():
    x, y = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((20, 32), (32, 8)))
    module = Function(torch._int_mm)
    assert_agrees(Lowerer([]).lower(module, (x, y)), module, (x, y), (-x, y))


class Experts(nn.Module):
    """Multiplies the rows of each expert by its matrix."""

    def __init__(self, op, dtype=torch.float32):
        super().__init__()
        self.op, self.weight = op, nn.Parameter(torch.randn(4, 8, 16).to(dtype))

    def forward(self, x, ends):
        return self.op(x, self.weight, ends)


def experts(*ends, rows=None, dtype=torch.float32):
    """Return rows and the ends of those of each expert, of whom some have none."""
    return torch.randn(rows or ends[-1], 8).to(dtype), torch.tensor(ends, dtype=torch.int32)


FEW = (0, 1, 1, 3), (3, 3, 3, 3), (0, 0, 0, 3)
MANY = (0, 2, 5, 9), (9, 9, 9, 9), (0, 0, 0, 9)


def test_rows_of_experts():
    pytest.importorskip("transformers.integrations.moe")
    module = Experts(torch.ops.transformers.grouped_mm_fallback)
    rows = torch.export.Dim("rows", min=1, max=16)
    lowered = Lowerer([]).lower(module, experts(*MANY[0]), dynamic_shapes=({0: rows}, None))
    wrong = experts(1, 2, 3, 4)
    wrong[0][0], wrong[0][2] = math.inf, math.nan
    # Rows behind those of all experts are zeros.
    rest = experts(1, 1, 2, 4, rows=7), experts(0, 0, 0, 0, rows=2)
    ends = (*MANY, *FEW, (0, 0, 0, 1), (4, 4, 12, 16))
    assert_agrees(lowered, module, *(experts(*known) for known in ends), wrong, *rest)


@pytest.mark.suite
@pytest.mark.parametrize("plugins", [[], ["cpu"]])
@pytest.mark.parametrize("ends", [FEW, MANY])
def test_a_fixed_number_of_rows_of_experts(ends, plugins):
    pytest.importorskip("transformers.integrations.moe")
    module = Experts(torch.ops.transformers.grouped_mm_fallback)
    agree([module], *(experts(*known) for known in ends), plugins=plugins)


@pytest.mark.suite
def test_rows_of_experts_in_halves():
    module = Experts(aten._grouped_mm.default, torch.bfloat16)
    inputs = [experts(*known, dtype=torch.bfloat16) for known in MANY]
    assert_agrees(Lowerer([]).lower(module, inputs[0]), module, *inputs, tolerance=2**-7)


@pytest.mark.suite
def test_matrices_without_pivots_are_factored():
    singular = torch.tensor([[0.0, 1, 2], [0, 0, 3], [0, 4, 5]])
    calls = (singular,), (torch.zeros(3, 3),), (singular.flip(0),)
    agree([torch.linalg.det, torch.linalg.slogdet], *calls)


def test_what_the_kernels_of_the_runtime_refuse():
    agree(
        [
            lambda x: x.narrow_copy(-1, 1, 2),
            lambda x: (layers.pad(x, (-1, 2), value=3.0), layers.pad(x, (1, -2, -1, -1))),
            lambda x: x.to(torch.float64, non_blocking=True),
            lambda x: layers.log_softmax(x.half(), 1, dtype=torch.float32),
            lambda x: torch.bitwise_left_shift(x.to(torch.int32).abs(), 2),
            lambda x: torch.arange(True) + x[0] + torch.arange(False, 4, True, dtype=torch.half),
        ],
        (torch.randn(3, 4),),
        (torch.randn(3, 4),),
    )


def test_statistics_of_infinite_values():
    functions = [
        lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, 0, keepdim=True), *torch.var_mean(x)),
        lambda x: torch.pdist(x, 0),
    ]
    x = torch.randn(3, 5)
    x[0, 1], x[1, 4], x[2, 0] = math.inf, -math.inf, math.nan
    agree(functions, (torch.randn(3, 5),), (x,), (x.flip(0, 1),))


BODIES = (
    lambda x: torch.fmod(x, 3) + torch.remainder(x, -3),
    lambda x: torch.sort(x, 1)[0] + x.sum(1, keepdim=True),
    lambda x: layers.max_pool2d(x.double()[None], 2, 1, 1)[0, 1:, 1:].long() * 2,
)


class Chosen(nn.Module):
    """Formulas in both branches of a choice."""

    def forward(self, x):
        one, two, three = BODIES
        return torch.cond(x.sum() > 0, lambda x: two(one(x)), lambda x: three(x) - one(x), (x,))


class Mapped(nn.Module):
    """A formula for each row."""

    def forward(self, x):
        return torch._higher_order_ops.map(lambda row: BODIES[0](row) + row.sort()[1], x)


@pytest.mark.slice("Mapped")
@pytest.mark.parametrize("plugins", [pytest.param([], marks=pytest.mark.suite), ["cpu"]])
@pytest.mark.parametrize("kind", [Chosen, Mapped])
def test_branches_of_control_flow(kind, plugins):
    x = torch.tensor([[-7, 5, 2, -4], [3, 2**53 + 1, 8, 0]])
    assert_agrees(Lowerer(plugins).lower(kind(), (x,)), kind(), (x,), (-x,))


def test_what_no_formula_computes_is_refused():
    size = torch.export.Dim("size", min=3, max=9)
    module = calling(lambda x: layers.adaptive_avg_pool2d(x, 2))
    inputs = torch.randn(1, 2, 4, 5, dtype=torch.float64)
    with pytest.raises(LoweringError) as caught:
        Lowerer([]).plan(module, (inputs,), dynamic_shapes={"inputs": ({2: size},)})
    op, _, told = caught.value.what.partition(" at small.py:")
    assert op == "no plugin takes aten._adaptive_avg_pool2d.default"
    assert told.endswith(
        " (forward/aten__adaptive_avg_pool2d_default; portable: its portable kernel fails or is "
        "wrong for what it is given)"
    )


@pytest.mark.suite
def test_a_mask_may_be_larger_than_what_it_selects_from():
    module = calling(lambda x, mask: (torch.masked_select(x, mask), x.masked_select(mask).sum()))
    rows = torch.export.Dim("rows", min=1, max=8)
    shapes = {"inputs": ({1: rows}, {2: rows})}
    calls = [
        (torch.randn(1, size, 4), torch.rand(3, 1, size, 1) > low)
        for size, low in ((6, 0.3), (8, -1), (1, 0.9), (5, 0), (8, 1.1))
    ]
    dynamic = Lowerer(["cpu"]).lower(module, calls[0], dynamic_shapes=shapes)
    assert_agrees(dynamic, module, *calls)
    assert_agrees(by_partitioner(module, calls[1], ["cpu"]), module, calls[1], calls[4])


@pytest.mark.suite
def test_norms_of_values_far_from_zero_are_as_exact_as_those_around_it():
    scale = torch.linspace(0.5, 2, 140).reshape(4, 5, 7)
    norms = (
        lambda x: layers.layer_norm(x, (7,)),
        lambda x: layers.layer_norm(x, x.shape[1:], scale, scale + 1),
        lambda x: layers.group_norm(x, 2, scale[:, 0, 0], scale[:, 1, 0]),
        layers.instance_norm,
        lambda x: torch.native_layer_norm(x, (7,), None, None, 1e-5),
        lambda x: layers.layer_norm(x.half(), (7,)),
    )
    # Of other numbers, one draw in twenty has a half that is rounded the other way.
    spread = torch.randn(3, 4, 5, 7, generator=torch.Generator().manual_seed(0))
    module = calling(*norms)
    rows = ({0: torch.export.Dim("rows", min=2, max=8)},)
    edges = spread.clone()
    edges[0, 0, 0, :2], edges[1, 1, 1, 0] = math.inf, math.nan
    calls = [(spread,), (spread * 5,), (spread[:2] + 1,), (edges,)]
    lowered = Lowerer(["cpu"]).lower(module, (spread,), dynamic_shapes={"inputs": rows})
    assert_agrees(lowered, module, *calls)
    far = torch.cat([spread] * 2) + 1000 * torch.randn(6, 1, 1, 1)
    exact = [norm(far.double()) for norm in norms[:1]]
    for plugins in ([], ["cpu"]):
        (made,) = execute(Lowerer(plugins).lower(calling(norms[0]), (far,)), (far,))
        torch.testing.assert_close(made, exact, rtol=0, atol=1e-5, check_dtype=False)


@pytest.fixture
def library():
    with torch.library._scoped_library("etdev_tests", "FRAGMENT") as library:
        yield library


def test_an_op_of_another_library_that_no_plugin_takes_is_written_in_torch(library):
    library.define("scaled(Tensor x, Tensor scale) -> Tensor")
    library.impl("scaled", lambda x, scale: (x * scale).sum(0), "CompositeImplicitAutograd")
    agree([torch.ops.etdev_tests.scaled], (torch.randn(3, 4), torch.randn(4)))


class Linears(nn.ModuleList):
    """Layers of one input."""

    def forward(self, x):
        return [linear(x) for linear in self]


def test_weights_of_torchao_that_no_plugin_takes_are_dequantised_by_portable_kernels():
    module = Linears(nn.Sequential(nn.Linear(64, 8)) for _ in range(3)).eval()
    for linear, dtype in zip(module, (torch.int2, torch.int4, torch.int8), strict=True):
        quantize_(linear, IntxWeightOnlyConfig(weight_dtype=dtype))
    calls = [(torch.randn(2, 64),) for _ in range(2)]
    assert_agrees(Lowerer(["cpu"]).lower(module, calls[0]), module, *calls)


@pytest.mark.suite
def test_samples_at_places_that_are_not_there():
    places = [(math.nan, 0), (0, math.nan), (math.nan, math.nan), (math.inf, 0), (0, -math.inf)]
    places += [(0.3, -0.2), (5, 5), (-7, 2), (1e30, 0), (-1, 1)]
    grid = torch.tensor(places).view(1, 2, 5, 2)
    image = torch.arange(60.0).view(1, 2, 5, 6).sin()
    ways = [
        *((mode, padding) for mode in ("bilinear", "nearest") for padding in ("zeros", "border")),
        *(("bilinear", "reflection"), ("nearest", "reflection"), ("bicubic", "zeros")),
    ]

    def sampler(mode, padding, corners):
        return lambda x, grid: layers.grid_sample(x, grid, mode, padding, corners)

    samplers = [sampler(*way, corners) for way in ways for corners in (True, False)]
    agree(samplers, (image, grid), (image, grid * 0.2))


def test_what_is_resized_keeps_its_first_elements():
    def resized(x):
        sizes = [(2, 6), (2, 2), (12,), (0, 3), ()]
        given = [((x * 2).resize_(s), (x + 1).resize_as_(torch.ones(s))) for s in sizes]
        return given, (x[1:] * 2).resize_(2)

    agree([resized], (torch.randn(3, 4),), (torch.randn(3, 4),))


def test_what_is_resized_to_more_than_it_has_is_refused():
    with pytest.raises(
        LoweringError, match=r"neither ExecuTorch nor torch decomposes aten\.resize"
    ):
        Lowerer([]).lower(calling(lambda x: (x * 2).resize_(5, 5)), (torch.randn(3, 4),))


@pytest.mark.suite
def test_rows_may_be_repeated_as_data_say():
    def regulated(rows, repeats):
        result = torch.repeat_interleave(rows, repeats, dim=0)
        torch._check(result.shape[0] <= 40)
        return result * 2, torch.repeat_interleave(repeats, output_size=8)

    shares = [[0, 3, 0, 4, 1], [8, 0, 0, 0, 0], [1, 1, 2, 2, 2], [0, 0, 0, 0, 8]]
    calls = [(torch.randn(5, 3), torch.tensor(share)) for share in shares]
    lowered = Lowerer(["cpu"]).lower(calling(regulated), calls[0])
    assert_agrees(lowered, calling(regulated), *calls)
    assert_agrees(by_partitioner(calling(regulated), calls[0], ["cpu"]), calling(regulated), *calls)
    module = calling(lambda repeats: torch.repeat_interleave(repeats) * 2)
    with pytest.raises(LoweringError, match="say how large that number may be"):
        Lowerer([]).lower(module, (torch.tensor([1, 4]),)).to_executorch()


def test_the_largest_of_a_size_that_may_change_is_found():
    def largest(x):
        one = torch.nn.functional.adaptive_max_pool1d(x, 1, return_indices=True)
        image = x.unsqueeze(-1).expand(-1, -1, -1, 6)
        return *one, *torch.nn.functional.adaptive_max_pool2d(image, (1, 3), return_indices=True)

    calls = [(torch.randn(2, 3, size).round(),) for size in (9, 1, 16, 5)]
    for (x,) in calls[::2]:
        x[0, 1, [1, 4]] = math.nan
    calls.append((torch.full((2, 3, 4), -math.inf),))
    shapes = {"inputs": ({2: torch.export.Dim("size", min=1, max=16)},)}
    lowered = Lowerer(["cpu"]).lower(calling(largest), calls[0], dynamic_shapes=shapes)
    assert_agrees(lowered, calling(largest), *calls)


@pytest.mark.slice("options1")
@pytest.mark.parametrize("options", [(2,), ((1, 2, 2),), (3, 2, 1), ((3, 2, 3), 2, (1, 1, 0))])
def test_volumes_are_pooled_with_and_without_places(options):
    def pooled(x):
        values = torch.nn.functional.max_pool3d(x, *options, ceil_mode=True)
        return values, *torch.nn.functional.max_pool3d(x, *options, return_indices=True)

    calls = [(torch.randn(2, 2, 5, 6, 7).round(),) for _ in range(2)]
    calls[1][0][0, 0, 2, 3, 1:4] = math.nan
    assert_agrees(Lowerer([]).lower(calling(pooled), calls[0]), calling(pooled), *calls)
