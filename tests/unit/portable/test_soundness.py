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


def test_pieces_keep_dynamic_sizes():
    def pieces(x):
        kept = x[x.sum(1) > -9].split(3, 1)
        return x.split([1, 3], 1), x.chunk(2, 1), kept, x.T.split(2)

    calls = [(torch.randn(rows, 4),) for rows in (3, 1, 0, 8)]
    sizes = ({0: torch.export.Dim("n", max=8)},)
    program = torch.export.export(Function(pieces), calls[0], dynamic_shapes=(sizes,))
    assert_agrees(Lowerer([]).lower(program), Function(pieces), *calls)


@pytest.mark.slice("mean")
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


@pytest.mark.slice("mean")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_labels_after_the_first_missing_one_do_not_count(reduction):
    def loss(x, labels):
        return torch.nn.functional.multilabel_margin_loss(x, labels, reduction=reduction)

    labels = torch.tensor([[0, 1, -1, 0], [2, -1, 0, 0], [3, 0, 1, 2]])
    edges = X.clone()
    edges[0, 2], edges[1, 0] = NAN, math.inf
    agree(loss, (X, labels), (X, labels.flip(0) * 0 - 1), (edges, labels))
    if reduction != "none":
        agree(loss, (X[0], labels[0]), (X[1], labels[2]))
        agree(loss, (X[0, 0], torch.tensor(0)), (X[0, 1], torch.tensor(-1)))


@pytest.mark.parametrize("p", [0.25, 0.5, 1.0])
def test_what_dropout_keeps_is_scaled(p):
    dropout = Function(lambda x: torch.nn.functional.dropout(x, p))
    (values,), _ = execute(Lowerer([]).lower(dropout, (torch.ones(9),)), *[(torch.ones(9),)] * 2)
    assert set(values.tolist()) <= {0.0, float(torch.tensor(1 / (1 - p)) if p < 1 else 0)}
