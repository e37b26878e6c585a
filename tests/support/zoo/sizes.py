"""Sizes: dynamic ones that grow and shrink from call to call in one loaded method."""

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as layers

from support.zoo import Zoo, random

ZOO = Zoo()
BATCH = {0: Dim("batch", max=8)}
LENGTH = {1: Dim("length", min=4, max=12)}
ORDER = (2, 6, 6, 1, 8, 3, 8, 1, 5)


def batches(*rest, **parts):
    calls = [random(size, *rest, seed=seed) for seed, size in enumerate(ORDER)]
    return ZOO.model(*calls, edges=False, dynamic=BATCH, **parts)


def lengths(*rest, **parts):
    sizes = (5, 9, 12, 4, 12, 5, 7)
    calls = [random(2, size, *rest, seed=seed) for seed, size in enumerate(sizes)]
    return ZOO.model(*calls, edges=False, dynamic=LENGTH, **parts)


@batches(8, one=nn.Linear(8, 16), norm=nn.LayerNorm(16), two=nn.Linear(16, 4))
def layers_over_a_batch(net, x):
    return net.two(net.norm(net.one(x)).relu()).softmax(-1)


@batches(3, 8, 8, one=nn.Conv2d(3, 8, 3), norm=nn.BatchNorm2d(8), two=nn.Linear(8, 4))
def convolution_pool_and_layer_over_a_batch(net, x):
    y = layers.adaptive_avg_pool2d(net.norm(net.one(x)).relu(), 1)
    return net.two(y.flatten(1))


@batches(3, 8, 8, one=nn.Conv2d(3, 6, 3, stride=2), back=nn.ConvTranspose2d(6, 3, 2, stride=2))
def images_resized_over_a_batch(net, x):
    y = layers.max_pool2d(layers.interpolate(x, scale_factor=2.0, mode="bilinear"), 2)
    return net.back(layers.relu6(net.one(y))), x.mean((2, 3)), layers.pad(y, (1, 1, 0, 0))


@batches(8)
def statistics_over_a_batch(net, x):
    return x.mean(0), x.sum(0, keepdim=True), x.amax(0), x.std(0, correction=0), x.shape[0] * 2


@batches(8)
def rows_compared_with_each_other(net, x):
    far = torch.cdist(x, x)
    near = x @ x.T / (x.norm(dim=1)[:, None] * x.norm(dim=1))
    return far.argmin(0), near.softmax(0), torch.triu(near), near.diagonal()


@batches(8, row=nn.Parameter(random(1, 8)), rest=nn.Linear(16, 3))
def one_row_for_all_of_a_batch(net, x):
    wide = net.row.expand(x.shape[0], -1)
    return net.rest(torch.cat([wide, x], 1)), torch.cat([x, net.row]), x + net.row


@batches(2, 6)
def reshaped_batches(net, x):
    return x.flatten(0, 1), x.reshape(-1, 3, 4), x.transpose(0, 1).contiguous(), x.flip(0), x[-1]


@batches(6, q=nn.Linear(6, 6), lstm=nn.LSTM(6, 4, batch_first=True))
def recurrent_layer_over_a_batch(net, x):
    out, (h, c) = net.lstm(net.q(x)[:, None].expand(-1, 3, -1))
    return out, h, c


@batches(4)
def numbers_of_rows(net, x):
    place = torch.arange(x.shape[0])
    return (
        place,
        x * place[:, None],
        x.cumsum(0),
        torch.ones(x.shape[0], 2),
        x.new_zeros(x.shape[0]),
    )


@batches(6, total=torch.zeros(6), count=torch.zeros((), dtype=torch.long))
def state_over_batches(net, x):
    net.total += x.sum(0)
    net.count += x.shape[0]
    return net.total / net.count, net.count


@batches(6, kept=torch.zeros(8, 6))
def rows_kept_over_batches(net, x):
    old = net.kept.clone()
    net.kept[: x.shape[0]] = x
    return old, net.kept.sum()


@lengths(8, attend=nn.MultiheadAttention(8, 2, batch_first=True))
def attention_over_a_length(net, x):
    return net.attend(x, x, x, need_weights=False)[0]


@lengths(8)
def causal_attention_over_a_length(net, x):
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    return layers.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


@lengths(8, position=nn.Embedding(12, 8), layer=nn.Linear(8, 8))
def positions_over_a_length(net, x):
    place = torch.arange(x.shape[1])
    far = place[None] - place[:, None]
    scores = x @ x.transpose(1, 2) - far.abs() * 0.1
    return net.layer(x + net.position(place)), scores.masked_fill(far > 0, -1e9).softmax(-1)


@lengths(conv=nn.Conv1d(2, 4, 3, padding=1), back=nn.Conv1d(4, 2, 1))
def signal_over_a_length(net, x):
    y = net.conv(x[None]).relu()
    return net.back(y), y.amax(-1), layers.avg_pool1d(y, 2), layers.pad(y, (2, 0))


@lengths(8)
def ends_of_a_length(net, x):
    return x[:, -1], x[:, 1:] - x[:, :-1], x[:, ::2], x[:, :2], x.roll(1, 1)


@lengths(8)
def sorted_length(net, x):
    value, index = x.sort(1, descending=True)
    return value, index, x.argmax(1), x.topk(2, 1)[0], x.cummax(1)[0]


@ZOO.model(
    *[
        (random(a, b, seed=a), random(b, c, seed=c))
        for a, b, c in ((3, 4, 5), (6, 2, 2), (1, 6, 6), (6, 6, 1), (2, 2, 2))
    ],
    edges=False,
    dynamic=({0: Dim("a", max=6), 1: Dim("b", max=6)}, {0: Dim("b", max=6), 1: Dim("c", max=6)}),
)
def product_of_three_sizes(net, x, y):
    return x @ y, (x @ y).relu().sum(1), x.T


@ZOO.model(
    *[random(2, 3, h, w, seed=h) for h, w in ((8, 8), (16, 12), (5, 16), (16, 16), (5, 5))],
    edges=False,
    dynamic={2: Dim("height", min=4, max=16), 3: Dim("width", min=4, max=16)},
    conv=nn.Conv2d(3, 4, 3, padding=1),
    last=nn.Conv2d(4, 2, 1),
)
def images_of_any_size(net, x):
    y = net.conv(x).relu()
    small = layers.max_pool2d(y, 2)
    return net.last(y), small, small.mean((2, 3)), layers.adaptive_avg_pool2d(y, 1)


@ZOO.model(
    *[torch.arange(n) % 7 for n in (4, 8, 8, 1, 6)],
    edges=False,
    dynamic=BATCH,
    table=nn.Embedding(7, 4),
)
def tokens_of_any_number(net, index):
    x = net.table(index)
    counts = torch.zeros(7).scatter_add(0, index, torch.ones(index.shape[0]))
    return x, x.sum(0), counts, layers.one_hot(index, 7), (index * 2) // 3
