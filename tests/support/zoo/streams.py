"""Streams: models that are called sample after sample, and keep what they need of those before."""

import torch
from torch import nn
from torch.nn import functional as layers

from support.zoo import Zoo, random

ZOO = Zoo()


def steps(*shape, count=4):
    """A call for each step."""
    return [random(*shape, seed=step) for step in range(count)]


def model(*calls, **parts):
    # What cancels out has no edges to compare, and XNNPACK's maximum and exp lose NaN.
    return ZOO.model(*calls, edges=False, **parts)


@model(
    *((random(1, 1, 16, seed=step), torch.tensor([step])) for step in range(4)),
    qkv=nn.Linear(16, 32, bias=False),
    keys=torch.zeros(1, 2, 8, 4),
    values=torch.zeros(1, 2, 8, 4),
    mask=torch.ones(8, 8, dtype=torch.bool).tril(),
    angles=torch.outer(torch.arange(8.0), torch.tensor([1.0, 0.1])),
)
def cache_of_grouped_queries_with_rotations(net, x, position):
    q, k, v = (part.view(1, 1, -1, 4).transpose(1, 2) for part in net.qkv(x).split([16, 8, 8], -1))
    angle = net.angles[position]

    def rotated(part):
        a, b = part[..., ::2], part[..., 1::2]
        turned = (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos())
        return torch.stack(turned, -1).flatten(-2)

    net.keys[:, :, position] = rotated(k)
    net.values[:, :, position] = v
    mask = net.mask[position][None, None]
    return layers.scaled_dot_product_attention(
        rotated(q), net.keys, net.values, attn_mask=mask, enable_gqa=True
    )


@model(
    *steps(1, 8),
    mix=nn.Linear(8, 16),
    parts=nn.Linear(8, 9),
    state=torch.zeros(1, 8, 4),
    window=torch.zeros(1, 8, 4),
    kernel=random(8, 4),
    decay=random(8, 4),
)
def selective_state_of_one_token(net, x):
    h, gate = net.mix(x).chunk(2, -1)
    net.window.copy_(torch.roll(net.window, -1, -1))
    net.window[:, :, -1] = h
    h = layers.silu((net.window * net.kernel).sum(-1))
    step, into, out = net.parts(h).split([1, 4, 4], -1)
    step = layers.softplus(step).unsqueeze(-1)
    kept = torch.exp(-step * net.decay.exp())
    net.state.copy_(net.state * kept + step * into.unsqueeze(1) * h.unsqueeze(-1))
    return (net.state @ out.unsqueeze(-1)).squeeze(-1) * layers.silu(gate)


@model(
    *steps(8),
    rkv=nn.Linear(8, 24),
    mix=torch.full((8,), 0.3),
    last=torch.zeros(8),
    above=torch.zeros(8),
    below=torch.zeros(8),
    largest=torch.full((8,), -1e30),
)
def weighted_keys_kept_as_exponents(net, x):
    r, k, v = net.rkv(x * net.mix + net.last * (1 - net.mix)).chunk(3)
    largest = torch.maximum(net.largest - 0.5, k)
    old, new = (net.largest - 0.5 - largest).exp(), (k - largest).exp()
    net.above.copy_(old * net.above + new * v)
    net.below.copy_(old * net.below + new)
    net.largest.copy_(largest)
    net.last.copy_(x)
    return r.sigmoid() * net.above / net.below


@model(
    *steps(1, 4, 3),
    first=nn.Conv1d(4, 8, 3),
    second=nn.Conv1d(8, 4, 3, dilation=2),
    before=torch.zeros(1, 4, 2),
    between=torch.zeros(1, 8, 4),
)
def causal_convolutions_in_chunks(net, x):
    joined = torch.cat([net.before, x], -1)
    net.before.copy_(joined[..., -2:])
    hidden = torch.cat([net.between, net.first(joined).relu()], -1)
    net.between.copy_(hidden[..., -4:])
    return net.second(hidden) + x


@model(
    *steps(2),
    x=torch.zeros(4, 1),
    p=torch.eye(4),
    move=torch.eye(4) + 0.1 * torch.eye(4).roll(2, 1),
)
def kalman_filter(net, measured):
    x, p = net.move @ net.x, net.move @ net.p @ net.move.T + 0.01 * torch.eye(4)
    sees = torch.eye(4)[:2]
    s = sees @ p @ sees.T + 0.1 * torch.eye(2)
    gain = torch.linalg.solve(s, sees @ p).T
    net.x.copy_(x + gain @ (measured.unsqueeze(-1) - sees @ x))
    net.p.copy_((torch.eye(4) - gain @ sees) @ p)
    return net.x.squeeze(-1)


@model(*steps(4), count=torch.tensor(0), mean=torch.zeros(4), spread=torch.zeros(4))
def running_mean_and_variance(net, x):
    net.count += 1
    away = x - net.mean
    net.mean += away / net.count
    net.spread += away * (x - net.mean)
    return (x - net.mean) / (net.spread / net.count + 1e-5).sqrt(), net.count.clone()


@model(*steps(3, 1, 4), cell=nn.GRU(4, 6, 2), hidden=torch.zeros(2, 1, 6))
def recurrent_layers_that_remember(net, x):
    y, hidden = net.cell(x, net.hidden)
    net.hidden.copy_(hidden)
    return y


@model(*steps(3, 4), ring=torch.zeros(6, 4), at=torch.tensor(0))
def ring_of_rows(net, x):
    net.ring.index_copy_(0, (net.at + torch.arange(3)) % 6, x)
    net.at.add_(3).remainder_(6)
    return net.ring.roll(-1, 0), net.ring[::2].t(), net.ring.view(-1)[3:9]


@model(*steps(3, 2, 6, 6), norm=nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4).train()))
def batch_norm_that_learns(net, x):
    net.norm[1].train()
    return net.norm(x).relu()
