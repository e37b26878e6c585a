"""Weights: one weight in several layers, and weights that are computed."""

import torch
from torch import nn
from torch.nn import functional as layers
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

from support.zoo import Zoo, random

ZOO = Zoo()
ROWS = [random(3, 8, seed=seed) for seed in range(3)]
IMAGES = [random(2, 4, 6, 6, seed=seed) for seed in range(3)]


def parameter(*shape):
    return nn.Parameter(random(*shape, seed=7) / 2)


def rows(**parts):
    return ZOO.model(*ROWS, edges=False, **parts)


def images(**parts):
    return ZOO.model(*IMAGES, edges=False, **parts)


@rows(w=parameter(8, 8))
def read_as_it_is_and_transposed(net, x):
    return layers.linear(x, net.w) + x @ net.w


@rows(w=parameter(8, 8))
def product_and_its_mirror(net, x):
    y = layers.linear(x, net.w)
    return y @ net.w, y @ net.w.T, net.w @ x.T


@images(c=parameter(4, 4, 3, 3))
def convolved_and_back(net, x):
    return layers.conv_transpose2d(layers.conv2d(x, net.c), net.c)


@images(c=parameter(4, 4, 3, 3))
def convolved_with_both_orders_of_channels(net, x):
    flipped = layers.conv2d(x, net.c.transpose(0, 1), padding=1)
    return layers.conv2d(x, net.c, padding=1) + flipped, layers.conv2d(x, net.c.flip(2, 3))


@rows(one=nn.Linear(8, 8))
def one_layer_three_times(net, x):
    y = net.one(x).relu()
    return net.one(net.one(y).tanh()), y


@rows(one=nn.Linear(8, 8), scale=parameter(8))
def weight_that_is_a_layer_and_an_addend(net, x):
    return net.one(x) + net.one.weight[:3], net.one.bias * net.scale, net.one.weight.sum()


@ZOO.model(
    *[torch.tensor([[1, 4, 2]]) + seed for seed in range(3)],
    edges=False,
    table=nn.Embedding(9, 8),
    norm=nn.LayerNorm(8),
)
def table_that_is_the_last_layer(net, index):
    return layers.linear(net.norm(net.table(index)), net.table.weight)


@rows(norm=nn.LayerNorm(8), other=nn.LayerNorm(8))
def norm_with_the_weights_of_another(net, x):
    y = layers.layer_norm(x, (8,), net.other.weight, net.norm.bias)
    return net.norm(y) + net.other(x), layers.rms_norm(x, (8,), net.other.weight)


@rows(one=weight_norm(nn.Linear(8, 5)), two=spectral_norm(nn.Linear(5, 8)))
def normed_weights(net, x):
    return net.two(net.one(x))


@images(one=weight_norm(nn.Conv2d(4, 4, 3)), two=weight_norm(nn.ConvTranspose2d(4, 2, 2), dim=1))
def normed_kernels(net, x):
    return net.two(net.one(x))


@rows(one=orthogonal(nn.Linear(8, 8)))
def orthogonal_weight(net, x):
    return net.one(x)


@rows(make=nn.Linear(8, 64))
def weights_made_by_a_layer(net, x):
    made = net.make(x[0]).reshape(8, 8)
    return layers.linear(x, made, x[1]), x @ made


@images(make=nn.Linear(4, 4 * 4 * 9))
def kernels_made_by_a_layer(net, x):
    made = net.make(x.mean((2, 3))).reshape(8, 4, 3, 3)
    y = layers.conv2d(x.reshape(1, 8, 6, 6), made, padding=1, groups=2)
    return y.reshape(2, 4, 6, 6)


@images(c=parameter(3, 4, 3, 3), style=nn.Linear(4, 4))
def modulated_kernels(net, x):
    w = net.c[None] * net.style(x.mean((2, 3)))[:, None, :, None, None]
    w = w * torch.rsqrt(w.pow(2).sum((2, 3, 4), keepdim=True) + 1e-8)
    return layers.conv2d(x.reshape(1, 8, 6, 6), w.reshape(6, 4, 3, 3), groups=2)


@rows(low=parameter(2, 8), high=parameter(8, 2), base=nn.Linear(8, 8))
def low_rank_beside_a_layer(net, x):
    merged = net.base.weight + net.high @ net.low
    return net.base(x) + (x @ net.low.T) @ net.high.T, layers.linear(x, merged, net.base.bias)


@rows(w=parameter(8, 8))
def masked_and_rounded_weights(net, x):
    sparse = torch.where(net.w.abs() > 0.3, net.w, 0.0)
    ternary = (net.w / net.w.abs().mean()).round().clamp(-1, 1)
    return layers.linear(x, sparse), layers.linear(x, ternary), layers.linear(x, net.w.sign())


@rows(w=parameter(4, 8, 8), gate=nn.Linear(8, 4))
def experts_in_one_tensor(net, x):
    share = net.gate(x).softmax(-1)
    mixed = torch.einsum("ne,eoi->noi", share, net.w)
    return torch.einsum("noi,ni->no", mixed, x), torch.einsum("eoi,ni->eno", net.w, x)


@rows(w=parameter(16, 8), b=parameter(16))
def parts_of_one_weight(net, x):
    first, second = net.w.chunk(2)
    one, two = net.b.split(8)
    return layers.linear(x, first, two) * layers.linear(x, second, one).sigmoid()


@rows(w=nn.Parameter((random(8, 8) * 20).to(torch.int8), requires_grad=False), s=parameter(8))
def bytes_scaled_to_weights(net, x):
    return layers.linear(x, net.w.float() * net.s[:, None]), net.w.to(torch.int32).sum(0)


@images(w=parameter(4, 1, 5), c=nn.Conv2d(4, 4, 1))
def kernels_of_another_rank(net, x):
    along = layers.conv2d(x, net.w[:, :, None], padding=(0, 2), groups=4)
    across = layers.conv2d(x, net.w[..., None], padding=(2, 0), groups=4)
    return net.c(along + across), layers.linear(x.mean((2, 3)), net.c.weight.flatten(1))


@rows(w=parameter(8, 8), v=parameter(8))
def weights_only(net, x):
    return net.w @ net.v, net.w.T.contiguous(), net.v.expand(3, 8), x


@rows(w=parameter(1, 8), empty=torch.zeros(0, 8))
def weights_of_one_row_and_of_none(net, x):
    return layers.linear(x, net.w), x @ net.empty.T, torch.cat([net.empty, x])
