"""Blocks: what published architectures are built of, written out."""

import math

import torch
from torch import nn

from support.zoo import Zoo, random

ZOO = Zoo()
layers, linear = nn.functional, nn.Linear
X = random(2, 4, 6)
IMAGE = random(1, 4, 6, 6)
LAST = IMAGE.to(memory_format=torch.channels_last)


def model(*calls, **parts):
    """Sums of the largest floats overflow or not by the order of their terms."""
    torch.manual_seed(0)
    return ZOO.model(*calls, edges=False, **parts)


@model(X, k=linear(6, 6), v=linear(6, 6), u=random(6, seed=1), w=-random(6, seed=2).abs())
def receptance_weighted_values(net, x):
    keys, values = net.k(x), net.v(x)
    top = bottom = torch.zeros(2, 6)
    largest, outputs = torch.full((2, 6), -1e30), []
    for step in range(x.shape[1]):
        key, value = keys[:, step], values[:, step]
        limit = torch.maximum(largest, net.u + key)
        old, new = torch.exp(largest - limit), torch.exp(net.u + key - limit)
        outputs.append((old * top + new * value) / (old * bottom + new))
        limit = torch.maximum(largest + net.w, key)
        old, new = torch.exp(largest + net.w - limit), torch.exp(key - limit)
        top, bottom, largest = old * top + new * value, old * bottom + new, limit
    return torch.stack(outputs, 1)


@model(
    X,
    inward=linear(6, 16),
    conv=nn.Conv1d(8, 8, 3, padding=2, groups=8),
    choice=linear(8, 14),
    a=random(8, 3, seed=1),
    outward=linear(8, 6),
)
def selective_scan(net, x):
    hidden, gate = net.inward(x).chunk(2, -1)
    hidden = layers.silu(net.conv(hidden.mT)[..., : x.shape[1]].mT)
    steps, b, c = net.choice(hidden).split([8, 3, 3], -1)
    steps, state, outputs = layers.softplus(steps), torch.zeros(2, 8, 3), []
    for step in range(x.shape[1]):
        wide = steps[:, step, :, None]
        given = wide * b[:, step, None] * hidden[:, step, :, None]
        state = torch.exp(-wide * torch.exp(net.a)) * state + given
        outputs.append((state * c[:, step, None]).sum(-1))
    return net.outward(torch.stack(outputs, 1) * layers.silu(gate))


@model(random(1, 4, 4, 6), qkv=linear(6, 18), bias=random(9, 2), index=torch.arange(16) % 9)
def shifted_windows(net, x):
    windows = torch.roll(x, (-1, -1), (1, 2)).view(1, 2, 2, 2, 2, 6)
    windows = windows.permute(0, 1, 3, 2, 4, 5).reshape(4, 4, 6)
    query, key, value = net.qkv(windows).view(4, 4, 3, 2, 3).permute(2, 0, 3, 1, 4).unbind(0)
    scores = query @ key.mT / math.sqrt(3) + net.bias[net.index].view(4, 4, 2).permute(2, 0, 1)
    mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(1, 2, 2, 2, 2, 6)
    mixed = mixed.permute(0, 1, 3, 2, 4, 5).reshape(1, 4, 4, 6)
    return torch.roll(mixed, (1, 1), (1, 2)) + x


@model(
    LAST,
    wide=nn.Sequential(nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU()),
    deep=nn.Conv2d(8, 8, 5, padding=2, groups=8),
    less=nn.Conv2d(8, 2, 1).to(memory_format=torch.channels_last),
    more=nn.Conv2d(2, 8, 1).to(memory_format=torch.channels_last),
    narrow=nn.Conv2d(8, 4, 1).to(memory_format=torch.channels_last),
)
def inverted_bottleneck(net, x):
    deep = net.deep(net.wide(x)).relu()
    pooled = layers.adaptive_avg_pool2d(deep, 1)
    return x + net.narrow(deep * net.more(layers.silu(net.less(pooled))).sigmoid())


@model(
    random(1, 2, 7, 5),
    down=nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"),
    low=nn.Conv2d(4, 4, 3, padding=1),
    up=nn.ConvTranspose2d(8, 2, 3, padding=1),
)
def encoder_decoder_of_odd_sizes(net, x):
    first = net.down(x).relu()
    second = net.low(layers.max_pool2d(first, 2)).relu()
    size = first.shape[-2:]
    wide = layers.interpolate(second, size=size, mode="bilinear", align_corners=True)
    return net.up(torch.cat([first, wide], 1))


@model(
    random(1, 4, 10),
    gates=nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=2**i) for i in range(3)),
    skips=nn.ModuleList(nn.Conv1d(4, 4, 1) for _ in range(3)),
)
def causal_dilations(net, x):
    total = 0
    for index, (gate, skip) in enumerate(zip(net.gates, net.skips, strict=True)):
        value, weight = gate(layers.pad(x, (2**index, 0))).chunk(2, 1)
        value = value.tanh() * weight.sigmoid()
        total, x = total + skip(value), x + value
    return total.relu()


@model(random(5, 4), gate=linear(4, 3), experts=nn.ModuleList(linear(4, 4) for _ in range(3)))
def routed_experts(net, x):
    weights, chosen = net.gate(x).softmax(-1).topk(2, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    gate = torch.zeros(5, 3).scatter(-1, chosen, weights)
    outputs = torch.stack([expert(x) for expert in net.experts], -1)
    return (outputs * gate.unsqueeze(1)).sum(-1)


@model(random(5, 4), gate=linear(4, 3), weights=random(3, 4, 4, seed=1))
def gathered_experts(net, x):
    chosen = net.gate(x).topk(1, -1)
    mixed = torch.einsum("bij,bj->bi", net.weights[chosen.indices[:, 0]], x)
    return mixed * chosen.values.sigmoid()


@model(random(2, 3, 4, 6))
def rotary_positions(net, x):
    frequencies = 1 / 10000 ** (torch.arange(0, 6, 2) / 6)
    angles = torch.outer(torch.arange(4.0), frequencies)
    even, odd = x[..., ::2], x[..., 1::2]
    rotated = even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()
    return torch.stack(rotated, -1).flatten(-2)


@model(random(1, 5, 8), query=linear(8, 8), key=linear(8, 4), value=linear(8, 4))
def linear_biases_of_grouped_queries(net, x):
    query = net.query(x).view(1, 5, 2, 4).transpose(1, 2)
    key, value = net.key(x)[:, None].repeat(1, 2, 1, 1), net.value(x)[:, None].expand(1, 2, 5, 4)
    places = torch.arange(5)
    slopes = torch.tensor([2**-4.0, 2**-8.0]).view(2, 1, 1)
    bias = -(places[:, None] - places).abs() * slopes
    bias = bias.masked_fill(places[:, None] < places, -math.inf)
    return layers.scaled_dot_product_attention(query, key, value, attn_mask=bias[None])


@model(random(6, 4), codes=random(5, 4, seed=1))
def nearest_codes(net, x):
    distance = (x**2).sum(-1, keepdim=True) - 2 * x @ net.codes.t() + (net.codes**2).sum(-1)
    chosen = distance.argmin(-1)
    code = net.codes[chosen]
    return x + (code - x).detach(), chosen, layers.mse_loss(code, x)


@model(random(1, 3, 5, 5), offset=nn.Conv2d(3, 2, 3, padding=1), mix=nn.Conv2d(3, 4, 1))
def deformed_samples(net, x):
    offset = net.offset(x).permute(0, 2, 3, 1).tanh() * 0.3
    grid = layers.affine_grid(torch.eye(2, 3)[None], (1, 3, 5, 5), align_corners=False)
    moved = layers.grid_sample(x, grid + offset, padding_mode="border", align_corners=False)
    return net.mix(moved)


@model((random(2, 3, 7), random(2, 3, seed=1)), hidden=random(1, 3, 4))
def step_of_a_beam(net, logits, scores):
    scores, places = (scores[:, :, None] + logits).flatten(1).topk(3, 1)
    beams = torch.div(places, 7, rounding_mode="floor")
    index = beams[..., None].expand(-1, -1, 4)
    return scores, beams, places % 7, net.hidden.expand(2, 3, 4).gather(1, index)


@model(random(2, 4, 3), t=random(3, 3, seed=1))
def forward_algorithm(net, x):
    scores = x[:, 0]
    for step in x[:, 1:].unbind(1):
        scores = torch.logsumexp(scores[:, :, None] + net.t + step[:, None], 1)
    return scores.logsumexp(1), (scores[:, :, None] + net.t).max(1)


@model(random(4, 4).abs(), anchors=random(4, 4, seed=1).abs())
def overlaps_of_boxes(net, x):
    boxes = torch.cat([x[:, :2], x[:, :2] + x[:, 2:] + net.anchors[:, 2:]], 1)
    area = (boxes[:, 2:] - boxes[:, :2]).clamp(min=0).prod(1)
    low = torch.max(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.min(boxes[:, None, 2:], boxes[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    return shared / (area[:, None] + area - shared)


@model(random(4, 3), layer=linear(3, 5), toward=random(5, 1, seed=1), by=random(5, 1, seed=2))
def attention_on_a_graph(net, x):
    hidden = net.layer(x)
    scores = layers.leaky_relu(hidden @ net.toward + (hidden @ net.by).t(), 0.2)
    scores = scores.masked_fill(torch.eye(4).roll(1, 0) + torch.eye(4) == 0, -9e15)
    return scores.softmax(1) @ hidden
