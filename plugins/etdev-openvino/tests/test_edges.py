"""Edges of OpenVINO's ops: what is refused with which reason, and what is taken up to there."""

import pytest
import torch
from support.models.small import Function
from torch import nn

pytest.importorskip("openvino", reason="openvino is not installed")

from etdev_openvino.plugin import OpenVinoPlugin
from support.toys.runtime import assert_agrees, execute

from etdev import Lowerer
from etdev.upstream.trees import flat

X, INDEX = torch.linspace(-3, 3, 24).reshape(2, 3, 4), torch.tensor([[0, 1]])
MASK = X > 0


def lowered(function, *inputs):
    return Lowerer([OpenVinoPlugin(precision="f32")]).lower(Function(function), inputs)


def reasons(function, *inputs):
    """Op and code of what is refused, of ops on constants, too."""
    lowerer = Lowerer([OpenVinoPlugin(precision="f32")], simplify=False)
    ledger = lowerer.plan(Function(function), inputs)["forward"].ledger
    return {(e.op.split(".")[1], e.verdicts[0].code) for e in ledger if e.owner == "portable"}


def exact(function, *calls):
    """Compare with eager PyTorch without a tolerance."""
    for outputs, inputs in zip(execute(lowered(function, *calls[0]), *calls), calls, strict=True):
        for output, value in zip(outputs, flat(function(*inputs)), strict=True):
            torch.testing.assert_close(output, value, atol=0, rtol=0)


def both(value):
    return value, value.clone()


def assert_computes_what_eager_does(function, *inputs):
    calls = [[v * s if v.is_floating_point() else v for v in inputs] for s in (1, -2)]
    assert_agrees(lowered(function, *inputs), function, *calls)


@pytest.mark.slice("sum", "one element", "condition", "arange", "indices")
@pytest.mark.parametrize(
    ("function", "inputs", "refused"),
    [
        (lambda x: x.sum(1) / 3, (X,), ("div", "arguments")),
        (lambda x: torch.tanh(x.mean((1, 2))) / 3, (X,), ("div", "arguments")),
        (lambda x: torch.var(x[:, :1], 1), (X,), ("var", "arguments")),
        (lambda x, i: x.gather(1, i), (X[0], INDEX), ("gather", "arguments")),
        (lambda m: torch.where(m, m, m.flip(0)), (MASK,), ("where", "bool")),
        (lambda x: both(x + 1), (X,), ("_clone_dim_order", "nothing")),
        (lambda x: nn.functional.layer_norm(x, (4,), torch.arange(4.0)), (X,),
         ("arange", "arguments")),
        (lambda x, i: x[i - 1, :, -i], (X, INDEX), ("index", "arguments")),
        (lambda x: nn.functional.group_norm(x, 1), (X[0],), ("native_group_norm", "arguments")),
    ],
    ids=["sum", "mean", "one element", "part", "condition", "twice", "arange", "indices", "norm"],
)  # fmt: skip
def test_what_openvino_loses_or_cannot_compile_is_refused(function, inputs, refused):
    assert refused in reasons(function, *inputs)
    assert_computes_what_eager_does(function, *inputs)


def test_a_bias_without_weight_is_left_unread():
    def model(x):
        return torch.addmm(x[0] / 0, x[0], x[1].T[:, :3].repeat(1, 2)[:, :4], beta=0)

    # In pieces, without the bias, which OpenVINO would have multiplied by zero.
    assert "addmm" not in dict(reasons(model, X))
    assert_computes_what_eager_does(model, X)


@pytest.mark.slice("whole")
@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: (torch.tanh(x.sum(2)) / 3, x.sum((0, 1)) / 3, x.sum(1) * 3), (X,)),
        (lambda x, i: x.gather(1, i), (X[0], INDEX.expand(3, 2).contiguous())),
        (
            lambda m: (
                ~m[:, :1].expand(2, 3, 4),
                (~m).reshape(6, 4),
                (~m).permute(2, 0, 1).reshape(4, 6),
                torch.zeros_like(m) | m,
            ),
            (MASK,),
        ),
    ],
    ids=["sums", "whole", "masks"],
)
def test_what_is_right_beside_it_is_taken(function, inputs):
    assert not reasons(function, *inputs)
    assert_computes_what_eager_does(function, *inputs)


def ties(shape, dtype):
    values = torch.randint(-2, 3, (8, *shape), generator=torch.Generator().manual_seed(0))
    return values.to(dtype)


def positions(x):
    """Read each op's positions, some of rows that are long enough for vectors."""
    largest = nn.functional.max_pool2d(x[None], 2, return_indices=True)[1]
    found = [torch.topk(x, 3)[1], torch.topk(x, 1, largest=False)[1], largest]
    for dim in (0, 1, -1):
        found += [x.max(dim)[1], x.min(dim, keepdim=True)[1], x.argmax(dim), x.argmin(dim)]
    return [*found, torch.sort(x, descending=True, stable=True)[1]]


@pytest.mark.slice("shape0-torch.float32")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(3, 4, 8), (2, 2, 33)])
def test_positions_of_tied_values_are_pytorchs(shape, dtype):
    first, *others = ties(shape, dtype)
    assert {("max", "ties"), ("min", "ties"), ("topk", "ties")} <= reasons(positions, first)
    exact(positions, (first,), *((x,) for x in others))


def test_a_sort_whose_positions_are_read_is_stable():
    x = ties((3, 33), torch.float32)[0]
    (outputs,) = execute(lowered(torch.sort, x), (x,))
    for output, value in zip(outputs, torch.sort(x, stable=True), strict=True):
        assert torch.equal(output, value)


def test_values_without_positions_and_the_first_position_are_taken():
    def values(x):
        pooled, places = nn.functional.max_pool2d(x[None], 2, return_indices=True)
        found = x.max(1)[0], x.min(-1)[0], x.sort()[0], x.topk(3)[0], x.argmax(1), x.argmin(-1)
        return *found, pooled * 2, places

    x = ties((3, 4, 8), torch.float32)[0]
    assert not reasons(values, x)
    assert_computes_what_eager_does(values, x)


STEPS = torch.cat([torch.arange(-60, 60) * step for step in (0.1, 0.3, 0.7, 1.0)])
DIVISORS = (0.1, -0.7, 0.3, 1e-3, 3.0, -3.0)


@pytest.mark.slice("floor_divide", "remainder")
@pytest.mark.parametrize(
    "divide",
    [
        lambda x, y: (x // y, 1 // y, *(x // d for d in DIVISORS)),
        lambda x, y: [torch.div(x, d, rounding_mode="trunc") for d in (*DIVISORS, y)],
        lambda x, y: [torch.floor(x / d) for d in (*DIVISORS, y)],
        lambda x, y: (x % y, torch.fmod(x, y), *(x % d for d in DIVISORS)),
    ],
    ids=["floor_divide", "trunc", "floor", "remainder"],
)
def test_quotients_of_multiples_are_rounded_as_in_pytorch(divide):
    x, y = (
        each.contiguous() for each in torch.meshgrid(STEPS, torch.tensor(DIVISORS), indexing="ij")
    )
    exact(divide, (x, y))


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_divisions_that_round_are_left(mode):
    def divide(x):
        return torch.div(x, 0.1, rounding_mode=mode)

    assert ("div", "precision") in reasons(divide, X)
    exact(divide, (X,), (X * 1e10,))


def test_a_quotient_that_is_rounded_is_taken():
    assert not reasons(lambda x: torch.floor(x / 0.1), X)
    exact(lambda x: torch.floor(x / 0.1), (X,), (X * 1e10,))


def test_rows_of_a_constant_table_are_not_rounded_beside_a_product():
    def model(x, i):
        return nn.functional.linear(nn.functional.embedding(i, torch.arange(12.0).view(3, 4)), x)

    inputs = (X[0], torch.tensor([2, 0, 1]))
    lowered = Lowerer([OpenVinoPlugin(precision="bf16")]).lower(Function(model), inputs)
    owners = {entry.op.split(".")[1]: entry.owner for entry in lowered.plan["forward"].ledger}
    assert owners["embedding"] == "portable"
    lowered.verify(inputs)


def test_float16_has_no_erf_and_no_truncated_division():
    refused = reasons(lambda x: (torch.erf(x), torch.div(x, x, rounding_mode="trunc")), X.half())
    assert refused == {("erf", "arguments"), ("div", "precision")}


ROUNDED = (
    lambda x: torch.cat([x.half(), x]),
    lambda x: torch.stack([x.half(), x]),
    lambda x: torch.where(x > 0, x.half(), x),
    lambda x: x.half() + x,
    lambda x: x.half().float() * 2,
    lambda x: x.half().reshape(4, 6).T.relu()[1:].float() + 1,
    lambda x: x.half().split(2, 2)[1].float() + 1,
    lambda x: torch.cat([x.half(), (x * 2).half()]).float() * 2,
    lambda x: (x.half(), x.half().float(), x.half() * 2),
    lambda x: (x * 1000).long().half().float() * 2,
    lambda x: (x.half() == x, x.half() > 0.5002),
)


def test_what_is_converted_to_float16_and_back_is_rounded():
    torch.manual_seed(0)
    exact(lambda x: [function(x) for function in ROUNDED], (torch.randn(2, 3, 4) * 100,))


def test_a_float16_layer_between_float32_ones_stays_whole():
    module = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.ReLU()).half()
    taken = Lowerer([OpenVinoPlugin()]).plan(
        Function(lambda x: module(x.half()).float() * 2), (torch.randn(2, 4),)
    )
    assert not taken["forward"].fallback


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
def test_what_overflows_float16_is_infinite_with_exact_nan(dtype):
    function = Function(lambda x: x.half() * 0.001)
    example = (torch.ones(2, dtype=dtype),)
    lowered = Lowerer([OpenVinoPlugin(nan="exact")]).lower(function, example)
    lowered.verify((torch.tensor([1e6, -1e6]).to(dtype),))


INF = float("inf")
HIDDEN = torch.tensor([[True] * 4, [False] * 4, [True, False, True, False]])
FILLS = torch.zeros(3, 4).masked_fill(HIDDEN, -INF)


@pytest.mark.slice("amax", "max_pool2d_with_indices")
@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("amax", lambda x, m: x.masked_fill(m, -INF).amax(-1)),
        ("amin", lambda x, m: torch.where(m, INF, x).reshape(2, 3, 4).amin(2)),
        ("max", lambda x, m: (x * 2 + FILLS).max(-1).values),
        ("min", lambda x, m: (-(x + FILLS)).min(-1).values),
        ("max_pool2d_with_indices", lambda x, m: nn.functional.max_pool2d(x + FILLS, (1, 4))),
        ("amin", lambda x, m: (-(x + FILLS).clamp(min=-9.0) - FILLS).amin(-1)),
    ],
)
def test_the_greatest_of_nothing_but_infinities_is_infinite(op, function):
    assert (op, "infinity") in reasons(function, X, HIDDEN)
    exact(function, (X, HIDDEN))


@pytest.mark.slice("<lambda>0", "<lambda>2")
@pytest.mark.parametrize(
    "function",
    [
        lambda x, m: (x + 1).amax(-1),
        lambda x, m: (x + FILLS).amax(-1).clamp(min=-9.0),
        lambda x, m: (x + FILLS).clamp(min=-9.0).max(-1).values,
        lambda x, m: torch.softmax(x + FILLS, -1)[1:].amax(-1),
    ],
)
def test_the_greatest_of_clamped_infinities_is_taken(function):
    assert not {op for op, code in reasons(function, X, HIDDEN) if code == "infinity"}
    assert_agrees(lowered(function, X, HIDDEN), function, (X, HIDDEN))
