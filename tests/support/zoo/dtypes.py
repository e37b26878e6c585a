"""Dtypes: what is promoted, overflows, wraps around or rounds."""

import torch
from torch import nn

from support.zoo import Zoo, random

ZOO = Zoo()
X = random(3, 4)
NEGATIVE = torch.tensor([[-7, -3, -1, 0], [1, 2, 5, 7], [-8, 4, 3, -2]])
DIVISOR = torch.tensor([[2, -2, 3, 5], [-3, -4, 7, -1], [3, -3, 2, 4]])
model = ZOO.model


@model((X.half(), X.bfloat16(), X.double()))
def joined(net, half, other, x):
    return torch.cat([half, other], 1), torch.stack([x, half]), torch.hstack([x > 0, other])


@model((X.half(), X.bfloat16()))
def halves_of_both_kinds(net, half, other):
    return torch.where(half > 0, half, other), torch.maximum(half, other), half * other


@model((NEGATIVE.int(), X.half()))
def integers_beside_halves(net, integers, half):
    return integers < half, integers + half, torch.where(half > 0, integers, half)


@model((NEGATIVE.to(torch.int8), DIVISOR.to(torch.int8)), edges=False)
def divided_negatives(net, x, y):
    return x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), 7 % y


@model(NEGATIVE.to(torch.int8))
def wrapped_around(net, x):
    return x * 100 * x, x << 3, x >> 1, -x, x.abs(), x**3


@model(NEGATIVE.int())
def sums_that_wrap_around(net, x):
    return x.sum(0, dtype=torch.int32), x.cumsum(1), x.prod(1), (x * 2**30).sum(1)


@model(X)
def roots(net, x):
    return x**0.5, x**-0.5, x**2, x**-1, torch.pow(2.0, x)


@model(X.half())
def halves_multiplied_in_a_row(net, x):
    return x.cumprod(1), x.prod(), x.cumsum(0)


@model(X, scales=torch.tensor([0.1, 0.05, 0.02]), zeros=torch.tensor([1, 0, -2]).int())
def fake_quantised(net, x):
    channels = torch.fake_quantize_per_channel_affine(x, net.scales, net.zeros, 0, -128, 127)
    return channels, torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255)


@model(X, i=torch.tensor([[0, 0], [1, 2], [3, 3]]))
def reduced_scatters(net, x):
    added = x.scatter(1, net.i, x[:, :2], reduce="add")
    return added, x.scatter(1, net.i, 3.0, reduce="multiply"), nn.functional.rrelu(x)
