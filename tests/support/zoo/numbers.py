"""Numbers: factors of zero, scales of quantisers, and losses that leave out labels."""

import torch
from executorch.exir import EdgeCompileConfig  # noqa: F401  (registers the ops of quantisers)
from torch import nn

from support.zoo import Zoo, random

ZOO = Zoo()
X = random(3, 4)
LIMITS = (-128, 127, torch.int8)
LABELS = torch.tensor([[0, 1, -1, 0], [2, -1, 0, 0], [3, 0, 1, 2]])
model = ZOO.model


# Sums of the largest floats overflow or not by the order of their terms.
@model(X, edges=False, b=torch.full((3, 5), torch.nan), w=random(4, 5, seed=1))
def unread_bias(net, x):
    return torch.addmm(net.b, x, net.w, beta=0), torch.addmv(net.b[:, 0], x, net.w[:, 0], beta=0)


@model(X, b=random(3, 5), w=torch.full((4, 5), torch.inf))
def unread_product(net, x):
    return torch.addmm(net.b, x, net.w, alpha=0)


@model(X, edges=False, s=torch.tensor([0.1, 0.05, 0.02]), z=torch.tensor([1, 0, -2]))
def scales_of_channels(net, x):
    ops = torch.ops.quantized_decomposed
    integers = ops.quantize_per_channel(x, net.s, net.z, 0, *LIMITS)
    return ops.dequantize_per_channel(integers, net.s, net.z, 0, *LIMITS)


@model(X, edges=False)
def quantised_twice(net, x):
    ops = torch.ops.quantized_decomposed
    for scale, zero in ((0.05, 3), (0.1, 0)):
        x = ops.quantize_per_tensor(x, scale, zero, *LIMITS)
        x = ops.dequantize_per_tensor(x, scale, zero, *LIMITS)
    return x


@model((X, LABELS), (X + 1, LABELS.flip(0)), (X - 1, LABELS), (-X, LABELS), edges=False)
def missing_labels(net, x, labels):
    return nn.functional.multilabel_margin_loss(x, labels)


@model(X, edges=False)
def nothing_sorted(net, x):
    return x[:, :0].sort(1)[0].sum() + x


@model(X, edges=False, t=torch.tensor(0.0))
def steps_counted_read_and_returned(net, x):
    net.t.add_(1)
    return (x + net.t) / (1 - 0.9**net.t), net.t
