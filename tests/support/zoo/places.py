"""Places: rows and slices that data picks or that reach too far, and orders in memory."""

import torch
from torch import nn

from support.zoo import Zoo, random

ZOO = Zoo()
X = random(3, 4)
ROWS = [(X, torch.tensor(row)) for row in (1, -1, 0)]
IMAGE = random(1, 4, 6, 6).to(memory_format=torch.channels_last)
model = ZOO.model


@model(*ROWS, edges=False)
def row_by_data(net, x, i):
    return x[i] * 2, x[:, i]


@model(*ROWS, edges=False, b=torch.zeros(3, 4))
def row_written_by_data(net, x, i):
    net.b[i % 3].copy_(x[0])
    return net.b + 1


@model(X, edges=False)
def row_with_the_largest_sum(net, x):
    return x[x.sum(1).argmax()]


@model(X, edges=False, b=torch.zeros(3, 4), i=torch.tensor(0))
def row_by_state(net, x):
    net.b[net.i % 3].copy_(x[0])
    net.i.add_(1)
    return net.b + 0


@model(X)
def slices_beyond_the_ends(net, x):
    return x[2:100] + 1, x[-100:2] + 1, x[:, 2 : 2**62] * 2


@model(X)
def places_of_a_sort(net, x):
    return x.sort(1, descending=True)[1]


@model(torch.tensor([[1, 2], [3, 0]]), edges=False)
def one_hot(net, classes):
    return nn.functional.one_hot(classes, 4).float()


@model(IMAGE, edges=False)
def shuffled_to_one_channel(net, x):
    return nn.functional.pixel_shuffle(x, 2)


@model(IMAGE, edges=False, conv=nn.Conv2d(4, 1, 3).to(memory_format=torch.channels_last))
def layer_of_one_channel(net, x):
    return net.conv(x).relu()
