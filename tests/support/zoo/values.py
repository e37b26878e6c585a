"""Values: rounding, integers, bools, halves, indices and the ends of their ranges."""

import math

import torch
from torch import nn
from torch.nn import functional as layers

from support.zoo import Zoo, random

ZOO = Zoo()
EXACT = torch.tensor([-2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5])
TINY = torch.tensor([1e-40, -1e-40, 1e-45, -1e-45, 1e-38, -1e-38, 0.0, -0.0])
LARGE = torch.tensor([1e30, -1e30, 3e38, -3e38, 16777217.0, -8388609.0, 1e10, 2147483648.0])
ODD = torch.tensor([math.nan, math.inf, -math.inf, 1.0, -1.0, 0.0, math.nan, 2.0])
NUMBERS = torch.tensor([[-7, 7, -1, 0], [5, -5, 2**31 - 1, -(2**31)]])


def floats(*calls, **parts):
    return ZOO.model(*(calls or (EXACT, TINY, random(8) * 5)), edges=False, **parts)


def integers(dtype=torch.int64, **parts):
    return ZOO.model(*(NUMBERS.to(dtype) + n for n in range(3)), edges=False, **parts)


@floats(EXACT, TINY, random(8) * 5, LARGE)
def rounded_in_all_ways(net, x):
    return x.round(), x.floor(), x.ceil(), x.trunc(), x.frac(), x.round(decimals=2)


@floats()
def rounded_behind_a_sum(net, x):
    return (x + 1e-40).ceil(), (x * 2).floor(), (-x).ceil().to(torch.int64), x.ceil().bool()


@floats(TINY, random(8), TINY * 3)
def smallest_numbers(net, x):
    return x > 0, x.sign(), x == 0, x * 1e30, x.abs().log(), x.bool(), x.signbit()


@ZOO.model(ODD, ODD.flip(0), random(8), edges=False)
def what_is_not_a_number(net, x):
    return x.isnan(), x.isinf(), x.nan_to_num(0.5, 9.0, -9.0), x.isfinite(), x == x, x.nansum()


@floats(EXACT, random(8), LARGE)
def remainders_of_negatives(net, x):
    return x.remainder(0.75), x.fmod(0.75), x.floor_divide(2.0), x % -3, torch.div(x, 0.5).trunc()


@floats(EXACT, random(8), EXACT * 3)
def powers(net, x):
    return x**2, x**-1, x.abs() ** 0.5, x**3, 2.0**x, x.abs() ** x, x.pow(0), x.float_power(2)


@floats(EXACT, random(8), EXACT.flip(0))
def angles(net, x):
    return torch.atan2(x, x.flip(0)), torch.hypot(x, x.flip(0)), x.sinc(), x.deg2rad(), x.tan()


@floats(random(8).sigmoid(), random(8, seed=1).sigmoid() * 0.99)
def inverses_of_angles(net, x):
    return x.asin(), x.acos(), x.atanh(), (1 + x).acosh(), x.logit(eps=0.1), x.log1p(), x.expm1()


@integers()
def divided_integers(net, x):
    return (
        x // 3,
        x % 3,
        torch.div(x, -2, rounding_mode="trunc"),
        torch.div(x, -2, rounding_mode="floor"),
        x / 2,
        x.fmod(4),
        x.remainder(-4),
    )


@integers(torch.int32)
def bits_of_integers(net, x):
    return x & 12, x | 5, x ^ -1, ~x, x << 2, x >> 1, (x & 1).bool(), x.abs() % 7 == 3


@integers(torch.uint8)
def bytes_that_overflow(net, x):
    return x + x, x * 3, -x, x - 200, x.sum(), x.float() / 255, x.prod(dtype=torch.int32), x // 7


@integers(torch.int16)
def short_integers(net, x):
    return x * 300, x.sum(0), x.cumsum(1), x.to(torch.int8), x.max(1).values, x + 1.5, x.sort(1)[0]


@integers()
def large_integers(net, x):
    y = x * 3_000_000_000
    return y, y.sum(), y.amax(0), y.float(), y.to(torch.int32), y.cumsum(0), (y + 1) - y, y.argmin()


@integers()
def truths(net, x):
    a, b = x > 0, x % 2 == 0
    return a & b, a | ~b, a ^ b, a.sum(1), b.any(0), a.all(), a.float().mean(), a * 2, a.cumsum(0)


@integers()
def mixed_types(net, x):
    half = x.to(torch.float16) / 3
    return x + half, half.double() + 1, torch.where(x > 0, x, half), x * True, x.bool() * half


@ZOO.model(
    *[random(4, 6, seed=s).half() for s in range(3)], edges=False, layer=nn.Linear(6, 5).half()
)
def halves_in_layers(net, x):
    return (
        net.layer(x),
        layers.gelu(net.layer(x)),
        x.softmax(-1),
        layers.layer_norm(x, (6,)),
        x.sum(),
    )


@ZOO.model(
    *[random(4, 6, seed=s).bfloat16() for s in range(3)],
    edges=False,
    layer=nn.Linear(6, 5).bfloat16(),
)
def brain_floats_in_layers(net, x):
    return net.layer(x), x.relu() + 1, x.float().sum(0), x.amax(1), x.mean(0)


@ZOO.model(
    *[random(4, 6, seed=s).double() for s in range(3)], edges=False, layer=nn.Linear(6, 5).double()
)
def doubles_in_layers(net, x):
    return net.layer(x), x.exp().sum(), x.softmax(-1), x.float().double() - x, x.cumsum(0)


@ZOO.model(*[random(4, 6, seed=s).half() for s in range(3)], edges=False)
def half_joined_with_itself_in_float(net, x):
    return torch.cat([x.half(), x.half()]), torch.cat([x.float(), x.half().float()]), x.float() * 3


@ZOO.model(*[(random(5, 6, seed=s), torch.tensor([4, 0, 4, -1])) for s in range(3)], edges=False)
def rows_by_index(net, x, index):
    return (
        x[index],
        x[:, index],
        x[index, index],
        x.index_select(0, index % 5),
        x[index[0]],
        x[None, index],
    )


@ZOO.model(*[(random(5, 6, seed=s), torch.tensor([4, 0, 4, 1])) for s in range(3)], edges=False)
def rows_written_by_index(net, x, index):
    y = x.clone()
    y[index] = 1.0
    z = x.clone()
    z[:, index] += 2.0
    w = x.index_put((index,), x[:4], accumulate=True)
    return y, z, w, x.index_add(0, index, x[1:], alpha=2), x.index_fill(1, index, -1.0)


@ZOO.model(
    *[(random(4, 5, seed=s), random(4, 5, seed=s + 9).argsort(1)) for s in range(3)], edges=False
)
def gathered_and_scattered(net, x, index):
    return (
        x.gather(1, index),
        torch.zeros(4, 5).scatter(1, index, x),
        x.scatter_add(0, index % 4, x),
        x.scatter_reduce(1, index, x.flip(1), "amax", include_self=False),
        x.take_along_dim(index[:, :2], 1),
        x.take(index),
    )


@ZOO.model(*[random(4, 6, seed=s) for s in range(3)], edges=False)
def parts_and_wholes(net, x):
    return (
        *x.tensor_split(4, 1),
        *x.split([1, 3]),
        *x.chunk(3),
        torch.stack([x, x], -1),
        torch.cat([x, x[:0], x[:, :6]]),
        torch.block_diag(x[:2], x[2:]),
        x.unfold(1, 3, 2),
        *x.unbind(0),
    )


@ZOO.model(*[random(3, 4, seed=s) for s in range(3)], edges=False)
def moved_about(net, x):
    return (
        x.roll((1, -1), (0, 1)),
        x.rot90(),
        x.flip(0, 1),
        x.tile(2, 1, 2),
        x.repeat_interleave(2, 1),
        x.movedim(0, 1),
        x.as_strided((2, 2), (1, 4), 3),
        x.T.reshape(2, 6),
        x.diag_embed(1),
        torch.kron(x, x[:1]),
    )


@ZOO.model(*[random(4, 6, seed=s).round() for s in range(3)], edges=False)
def ties(net, x):
    return (
        x.argmax(1),
        x.argmin(),
        x.sort(dim=1, stable=True)[1],
        x.median(1)[0],
        x.kthvalue(2, 1)[0],
        x.max(0),
        x.topk(3, 1)[0],
        x.unique_consecutive()[:1],
    )


@ZOO.model(*[random(4, 6, seed=s) for s in range(3)], edges=False)
def statistics(net, x):
    return (
        x.std(1),
        x.var(unbiased=False),
        torch.var_mean(x, 0),
        x.logsumexp(1),
        x.norm(torch.inf, 1),
        x.norm(0, 1),
        x.norm(3),
        x.quantile(0.3, 1),
        x.prod(1),
        x.cumprod(1),
        x.logcumsumexp(1),
        x.diff(dim=1),
        x.histc(4),
    )


@ZOO.model(*[random(3, 4, 4, seed=s) for s in range(3)], edges=False)
def products_of_matrices(net, x):
    return (
        torch.einsum("bij,bjk,bkl->il", x, x, x),
        torch.einsum("bii->b", x),
        x.matrix_power(3),
        torch.baddbmm(x, x, x, beta=0.5, alpha=-2),
        torch.addmm(x[0], x[1], x[2], beta=0, alpha=3),
        torch.addr(x[0], x[0, 0], x[1, 1], alpha=2),
        torch.tensordot(x, x, ([0, 1], [0, 2])),
        torch.linalg.multi_dot([x[0], x[1], x[2]]),
        torch.chain_matmul(x[0], x[1]),
        torch.outer(x[0, 0], x[0, 1]),
    )


@floats(random(8), random(8, seed=1), EXACT)
def bounds_that_are_tensors(net, x):
    low, high = x.flip(0), x.roll(1)
    return (
        x.clamp(low, high),
        x.lerp(low, high),
        torch.addcdiv(x, low, high.abs() + 1, value=-2),
        torch.addcmul(x, low, high, value=0.5),
        x.copysign(low),
        x.heaviside(high),
        x.xlogy(high.abs()),
        x.logaddexp(low),
        torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])),
        x.isclose(low, atol=0.5),
    )


@ZOO.model(torch.tensor(3.0), torch.tensor(-0.5), torch.tensor(7.25), edges=False)
def numbers_without_dimensions(net, x):
    return (
        x * 2,
        x.reshape(1, 1),
        x.exp(),
        x.expand(2, 3),
        x.to(torch.int64),
        x.clamp(0, 1),
        x[None],
    )


@ZOO.model(*[random(0, 4), random(0, 4)], edges=False)
def nothing_in_it(net, x):
    return x.sum(0), x.relu(), torch.cat([x, torch.ones(1, 4)]), x.T, x.reshape(0, 2, 2), x.mean(1)


@ZOO.model(*[(random(3, 4, seed=s), s, 0.5 * s, s % 2 == 0) for s in (1, 1, 1)], edges=False)
def numbers_as_inputs(net, x, count, scale, whether):
    return x * scale + count, x if whether else -x, x.sum() * count
