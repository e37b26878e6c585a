"""What portable kernels get wrong is decomposed if no plugin takes it, and is as in PyTorch."""

import math
from functools import partial

import pytest
import torch
from support.models.small import Function, Several
from support.toys.runtime import assert_agrees, execute

from etdev import Lowerer

ops = torch.ops.quantized_decomposed
NAN = math.nan
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
SCALES, ZEROS = torch.tensor([0.1, 0.05, 0.02]), torch.tensor([1, 0, -2])
LIMITS = (-128, 127, torch.int8)
INTEGERS = torch.arange(-6, 6, dtype=torch.int8).reshape(3, 4)


def agree(function, *calls):
    module = Function(function)
    assert_agrees(Lowerer([]).lower(module, calls[0]), module, *calls)


FACTORS = ({"beta": 0}, {"beta": 0, "alpha": 2.5}, {"alpha": 0})
SUMS = (
    (torch.addmm, ((3, 5), (3, 4), (4, 5))),
    (torch.addmm, ((5,), (3, 4), (4, 5))),
    (torch.addmm, ((3, 5), (3, 0), (0, 5))),
    (torch.addbmm, ((3, 5), (2, 3, 4), (2, 4, 5))),
    (torch.addmv, ((3,), (3, 4), (4,))),
)


def test_what_has_a_factor_of_zero_is_not_read():
    cases, read, unread = [], [], []
    for op, shapes in SUMS:
        for factors in FACTORS:
            bias, left, right = (torch.randn(shape) for shape in shapes)
            cases.append((partial(op, **factors), 3))
            read += bias, left, right
            if factors.get("alpha", 1):
                unread += torch.full_like(bias, NAN), left, right
            else:
                unread += bias, left * NAN, right
    module = Several(cases)
    assert_agrees(Lowerer([]).lower(module, tuple(read)), module, tuple(read), tuple(unread))


def test_sums_of_integers_are_exact():
    def sums(x):
        return x.sum(0, dtype=x.dtype), x.sum(-1, keepdim=True, dtype=x.dtype)

    large = torch.full((3, 2), 2**30 + 1, dtype=torch.int32)
    agree(sums, (large,), (-large,))


def test_pieces_keep_dynamic_sizes():
    def pieces(x):
        kept = x[x.sum(1) > -9].split(3, 1)
        return x.split([1, 3], 1), x.chunk(2, 1), kept, x.T.split(2)

    calls = [(torch.randn(rows, 4),) for rows in (3, 1, 0, 8)]
    sizes = ({0: torch.export.Dim("n", max=8)},)
    program = torch.export.export(Function(pieces), calls[0], dynamic_shapes=(sizes,))
    assert_agrees(Lowerer([]).lower(program), Function(pieces), *calls)


def test_products_that_may_sum_nothing_are_right_when_they_do():
    def products(x):
        return x.mT @ x, torch.bmm(x.mT[None], x[None]), x @ x.mT

    calls = [(torch.randn(rows, 4),) for rows in (3, 0, 8)]
    sizes = ({0: torch.export.Dim("rows", max=8)},)
    program = torch.export.export(Function(products), calls[0], dynamic_shapes=(sizes,))
    lowered = Lowerer([]).lower(program)
    assert_agrees(lowered, products, *calls)
    names = [entry.op for entry in lowered.plan["forward"].ledger.entries]
    assert names.count("aten.cat.default") == 4


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings_are_computed(mode):
    table = torch.randn(7, 3)
    table[5] = NAN
    factors = torch.randn(6) if mode == "sum" else None

    def bags(rows, offsets):
        bag = torch.nn.functional.embedding_bag
        ends = bag(rows, table, offsets, mode=mode, include_last_offset=True, padding_idx=2)
        return ends, bag(rows, table, offsets, mode=mode, per_sample_weights=factors)

    rows = torch.tensor([1, 2, 0, 5, 2, 6])
    calls = [(rows, torch.tensor(offsets)) for offsets in ([0, 2, 2, 5], [0, 0, 3, 6])]
    agree(bags, *calls)


def test_more_ops_have_formulas():
    index = torch.tensor([[0, 0], [1, 2], [3, 3]])

    def several(x, integers):
        rectified = torch.nn.functional.rrelu(x, 0.2, 0.4)
        scattered = [x.scatter(1, index, x[:, :2], reduce=name) for name in ("add", "multiply")]
        rectified = rectified, x.half().cumprod(1), integers.cumprod(0), x.cumprod(-1)
        return (
            *rectified,
            *scattered,
            x.scatter(1, index, 3.0, reduce="add"),
            7 % integers,
            -7.5 % x,
        )

    agree(several, (X, INTEGERS * 2 + 1), (-X, INTEGERS * 2 - 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_of_halves_only_the_bias_is_not_read(dtype):
    bias, left, right = (torch.randn(shape, dtype=dtype) for shape in ((3, 5), (3, 4), (4, 5)))

    def both(bias, left, right):
        none = torch.addmm(bias, left[:, :0], right[:0], alpha=NAN)
        return torch.addmm(bias, left, right, beta=0), torch.addmm(bias, left, right, alpha=0), none

    unread = torch.full_like(bias, NAN)
    agree(both, (bias, left, right), (unread, left, right), (bias, left, right * math.inf))


def test_integers_have_factors_of_zero():
    left, right = torch.arange(12).reshape(3, 4), torch.arange(20).reshape(4, 5)
    inputs = (torch.ones(3, 5, dtype=torch.int64), left, right)
    agree(lambda *inputs: torch.addmm(*inputs, beta=0, alpha=3), inputs)


def test_scales_of_channels_may_be_float32():
    def both(x, scales, zeros):
        integers = ops.quantize_per_channel(x, scales, zeros, 0, *LIMITS)
        return integers, ops.dequantize_per_channel(integers, scales, zeros, 0, *LIMITS)

    agree(both, (X, SCALES, ZEROS), (X * 100, SCALES * 2, ZEROS))
    agree(both, (X, SCALES.double(), ZEROS), (X * 100, SCALES.double(), ZEROS))


def test_a_tensors_scale_may_be_float32():
    def both(x, scale, zero):
        integers = ops.quantize_per_tensor.tensor(x, scale, zero, *LIMITS)
        return integers, ops.dequantize_per_tensor.tensor(integers, scale, zero, *LIMITS)

    agree(both, (X, SCALES[0], ZEROS[0]), (X * 9, SCALES[1], ZEROS[2]))
    agree(both, (X, SCALES[0], ZEROS[0].int()), (X * 9, SCALES[1], ZEROS[2].int()))


def test_scales_of_tokens_may_be_float32():
    def quantised(x, scales, zeros):
        return ops.quantize_per_token(x, scales[:, None], zeros[:, None], *LIMITS)

    agree(quantised, (X, SCALES, ZEROS), (X * 9, SCALES * 2, ZEROS))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_labels_after_the_first_missing_one_do_not_count(reduction):
    def loss(x, labels):
        return torch.nn.functional.multilabel_margin_loss(x, labels, reduction=reduction)

    labels = torch.tensor([[0, 1, -1, 0], [2, -1, 0, 0], [3, 0, 1, 2]])
    edges = X.clone()
    edges[0, 2], edges[1, 0] = NAN, math.inf
    agree(loss, (X, labels), (X, labels.flip(0) * 0 - 1), (edges, labels))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_row_or_a_number_may_have_labels(reduction):
    def loss(x, labels):
        return torch.nn.functional.multilabel_margin_loss(x, labels, reduction=reduction)

    agree(loss, (X[0], torch.tensor([1, -1, 0, 0])), (X[1], torch.tensor([3, 0, 1, -1])))
    agree(loss, (X[0, 0], torch.tensor(0)), (X[0, 1], torch.tensor(-1)))


@pytest.mark.parametrize("p", [0.25, 0.5, 1.0])
def test_what_dropout_keeps_is_scaled(p):
    dropout = Function(lambda x: torch.nn.functional.dropout(x, p))
    (values,), _ = execute(Lowerer([]).lower(dropout, (torch.ones(9),)), *[(torch.ones(9),)] * 2)
    assert set(values.tolist()) <= {0.0, float(torch.tensor(1 / (1 - p)) if p < 1 else 0)}


def test_nothing_is_sorted():
    agree(lambda x: (torch.sort(x[:, :0]), torch.argsort(x[:0]), x[:, :0].sort(0)), (X,), (-X,))


def test_what_is_joined_or_chosen_from_is_promoted():
    def joined(half, other, x, integers):
        chosen = torch.where(x > 0, half, other), torch.pow(half.abs(), other)
        chosen = *chosen, integers < half, other == integers
        return (
            torch.cat([half, other], 1),
            torch.stack([x > 0, x]),
            torch.hstack([x, other]),
            *chosen,
        )

    inputs = (X.half(), X.bfloat16(), X.double(), torch.tensor(70000, dtype=torch.int32))
    agree(joined, inputs, tuple(-value for value in inputs), (X.half() * math.inf, *inputs[1:]))


def test_roots_and_fake_quantisers_hold_at_infinities():
    def roots(x):
        channels = torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.int(), 0, -128, 127)
        return x**0.5, x**-0.5, torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255), channels

    edges = torch.tensor([[0.0, -0.0, NAN, math.inf]] * 3)
    agree(roots, (X,), (edges,), (-edges,), (X * 1e6,))


def test_variances_of_few_values_may_be_infinite():
    def spread(x):
        return torch.var(x, 0, correction=2), torch.var(x, (0, 1), correction=2.5, keepdim=True)

    module, shapes = Function(spread), ({0: torch.export.Dim("rows", min=1, max=4)},)
    lowered = Lowerer([]).lower(module, (X,), dynamic_shapes=(shapes,))
    assert_agrees(lowered, module, (X,), (X[:2],), (X[:1],), (torch.ones(2, 4),))


@pytest.mark.parametrize("shape", [(0, 4), (2, 3, 0, 4)])
def test_extremes_of_nothing_are_nothing(shape):
    def extremes(x):
        return x.amax(1), x.amin(-1, keepdim=True), x.amin((1, 3)) if x.dim() > 2 else x + 1

    agree(extremes, (torch.zeros(shape),))


def test_products_of_nothing_are_zero():
    left, right = torch.ones(2, 3, 0), torch.ones(2, 0, 4)
    agree(lambda x, y: (torch.bmm(x, y), x[0] @ y[0]), (left, right))
