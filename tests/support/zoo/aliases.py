"""Aliases: values that share memory, and are written to or returned more than once."""

import torch
from torch import nn

from support.zoo import Zoo, random

ZOO = Zoo()
X = random(3, 4)
model = ZOO.model


@model(X)
def input_and_sum(net, x):
    return x, x + 1


@model(X)
def value_returned_thrice(net, x):
    y = x.sin()
    return {"first": y, "others": [y, y + 1], "last": y}


@model(X)
def views_of_a_value(net, x):
    y = x + 1
    return y, y.view(-1), y.t()


@model(X, b=torch.ones(3, 4))
def buffer_returned_twice(net, x):
    return net.b, net.b, x


@model(X, b=torch.ones(3, 4))
def views_of_a_written_buffer(net, x):
    net.b.add_(x)
    return net.b, net.b.t(), net.b[1]


@model(X, b=torch.ones(3, 4))
def view_from_before_a_write(net, x):
    row = net.b[0]
    y = row * 2
    net.b.add_(x)
    return y, row


@model(X, b=torch.ones(3, 4))
def old_new_and_newer(net, x):
    old = net.b + 0
    net.b += x
    new = net.b * 1
    net.b -= 1
    return old, new, net.b


@model(X, a=torch.ones(3, 4), b=torch.zeros(3, 4))
def swapped_buffers(net, x):
    a, b = net.a.clone(), net.b.clone()
    net.a.copy_(b)
    net.b.copy_(a + x)
    return net.a, net.b


@model(X, b=torch.ones(3, 4))
def input_kept_and_returned(net, x):
    net.b.copy_(x)
    return net.b, x


@model(X, b=torch.ones(3, 4))
def diagonal_written(net, x):
    net.b.diagonal().add_(x[0, :3])
    return net.b.sum()


@model(X, b=torch.ones(3, 4))
def halves_written(net, x):
    first, second = net.b.split(2, 1)
    first.add_(second)
    second.sub_(x[:, :2])
    return first.sum(), net.b


@model(X)
def input_written(net, x):
    x.add_(1)
    return x * 2


@model(X)
def row_of_an_input_written(net, x):
    x[0].zero_()
    return x * 2


@model((X, random(3, 4, seed=5)))
def input_written_with_another(net, x, y):
    x.copy_(y)
    return x + y


@model(X)
def written_through_a_mask(net, x):
    y = x + 0
    y[x > 0] = 0.0
    return y


# Its input has the name of the first one of a Sequential.
@model(X)
def input_written_at_once(net, input):
    return nn.functional.relu(input, inplace=True) * 2
