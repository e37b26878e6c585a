"""State: buffers that a method reads and writes, from call to call."""

import torch
from torch import nn

from support.zoo import Zoo, random

ZOO = Zoo()
X = random(3, 4)
ROWS = (X, torch.tensor([0, 5, 2])), (X + 1, torch.tensor([1, 2, 3])), (X, torch.tensor([3, 2, -1]))
model = ZOO.model


@model(X, b=torch.full((1,), 5.0))
def counter(net, x):
    net.b.add_(1)
    return x + net.b


@model(X, b=torch.tensor(0))
def integer_counter(net, x):
    net.b.add_(1)
    return x * net.b


@model(X, b=torch.tensor(False))
def toggled(net, x):
    result = torch.where(net.b, x, -x)
    net.b.logical_not_()
    return result


@model(X, edges=False, b=torch.zeros(2, dtype=torch.float64))
def double_sum(net, x):
    net.b.add_(x.double().sum())
    return net.b * 2


@model(torch.arange(12, dtype=torch.uint8).view(3, 4), b=torch.full((3, 4), 250, dtype=torch.uint8))
def wrapping_bytes(net, x):
    net.b.add_(x)
    return net.b.clone()


@model(X, b=torch.zeros(3, 4))
def moving_average(net, x):
    net.b.mul_(0.9).add_(x, alpha=0.1)
    return x - net.b


@model(X, b=torch.ones(5, 4))
def rolled(net, x):
    net.b.copy_(torch.roll(net.b, 1, 0))
    net.b[0].copy_(x[0])
    return net.b.clone()


@model(X, b=torch.zeros(3, 2))
def window(net, x):
    longer = torch.cat([net.b, x], 1)
    net.b.copy_(longer[:, -2:])
    return longer.unfold(1, 3, 1).sum(-1)


@model(X, b=torch.full((3, 4), -2.0))
def written_through_a_mask(net, x):
    net.b[x > 0] = 1.0
    return net.b.clone()


@model(*ROWS, b=torch.zeros(6, 4))
def put_rows(net, x, rows):
    net.b.index_put_((rows,), x)
    return net.b.sum(1)


@model(*ROWS, b=torch.zeros(6, 4))
def added_rows(net, x, rows):
    net.b.index_put_((rows,), x, accumulate=True)
    return net.b.sum(1)


@model(X, b=torch.zeros(3, 4))
def put_through_a_transpose(net, x):
    net.b.t().index_put_((torch.tensor([0, 2]),), x[:2, :3])
    return net.b + 1


@model(X, b=torch.zeros(3, 4))
def every_other_row(net, x):
    net.b[1:100:2].add_(1)
    return net.b + x


@model(X, a=torch.ones(3, 4), b=torch.zeros(3, 4))
def shifted_through_two(net, x):
    total = net.a + net.b
    net.a.copy_(net.b)
    net.b.copy_(x)
    return total


@model(X, b=torch.zeros(4, 3, 4))
def delay_line(net, x):
    oldest = net.b[0].clone()
    net.b[:-1].copy_(net.b[1:].clone())
    net.b[-1].copy_(x)
    return oldest


# Sums of the largest floats overflow or not by the order of their terms.
@model(X, edges=False, w=random(4, 4, seed=2))
def weight_that_changes(net, x):
    y = nn.functional.linear(x, net.w)
    net.w.mul_(0.5)
    return y


@model(X, edges=False, w=random(2, 3, 2, seed=2))
def kernel_that_changes(net, x):
    y = nn.functional.conv1d(x[None], net.w)
    net.w.add_(1)
    return y


@model(X, b=torch.zeros(3, 4))
def written_and_not_read(net, x):
    net.b.copy_(x)
    return x + 1


@model(X, b=torch.ones(3, 4))
def read_and_zeroed(net, x):
    y = net.b * 2
    net.b.zero_()
    return y + x


@model(X, b=torch.zeros(3, 4), c=torch.ones(3, 4))
def copied_from_another(net, x):
    net.b.copy_(net.c)
    return net.b + x


@model(X, b=torch.zeros(3, 4))
def copied_from_a_row(net, x):
    net.b.copy_(x[0])
    return net.b.sum(0) + x


@model(X, edges=False, b=torch.zeros(3, 4, dtype=torch.int32))
def copied_to_integers(net, x):
    net.b.copy_(x)
    return net.b + 1


@model(X, b=torch.zeros(3, 4))
def copied_from_halves(net, x):
    net.b.copy_(x.half())
    return net.b / 2


@model(random(1, 3, 4, 4), b=torch.zeros(1, 3, 4, 4).to(memory_format=torch.channels_last))
def channels_last(net, x):
    net.b.add_(x)
    return net.b.relu()


@model(X, b=torch.zeros(0, 4))
def nothing_to_write(net, x):
    net.b.add_(1)
    return x + net.b.sum()


@model(X, b=torch.zeros(5, 4), i=torch.tensor([0]))
def ring(net, x):
    net.b.index_put_((net.i % 5,), x[:1])
    net.i.add_(1)
    return net.b.clone()


@model(X, b=torch.zeros(1))
def branch_on_state(net, x):
    y = torch.cond(net.b.sum() > 2, lambda x: x * 2, lambda x: x - 1, (x,))
    net.b.add_(1)
    return y


# A layer whose bias is written is computed with its weight transposed on its own.
@model(X, edges=False, layer=nn.Linear(4, 5))
def bias_that_changes(net, x):
    y = net.layer(x)
    net.layer.bias.add_(1)
    return y


@model(X, edges=False, a=torch.zeros(4), b=torch.zeros(4), c=torch.zeros(4))
def three_that_rotate(net, x):
    first = net.a.clone()
    net.a.copy_(net.b)
    net.b.copy_(net.c)
    net.c.copy_(first + x[0])
    return torch.stack([net.a, net.b, net.c])


@model(X, edges=False, b=torch.zeros(2, 3, 4), i=torch.tensor(0))
def double_buffer(net, x):
    net.b.index_copy_(0, net.i.view(1), x[None])
    other = net.b.index_select(0, (1 - net.i).view(1))[0].clone()
    net.i.copy_(1 - net.i)
    return other


@model(X, edges=False, b=torch.tensor(12345))
def congruential_generator(net, x):
    net.b.mul_(1103515245).add_(12345).bitwise_and_(0x7FFFFFFF)
    return net.b.clone(), x * (net.b % 7)


@model(X, edges=False, b=torch.full((3, 4), torch.nan))
def first_call_by_nan(net, x):
    net.b.copy_(torch.where(net.b.isnan(), x, net.b * 0.5 + x))
    return net.b + 0


@model(X, edges=False, b=torch.zeros(3, 4))
def cumulative_in_place(net, x):
    net.b.add_(x.cumsum(0))
    net.b.cumsum_(1)
    return net.b.clone()


@model(X, edges=False, b=torch.zeros(1, 2, 5, 4), p=torch.tensor(0), q=nn.Linear(4, 4))
def cache_with_its_own_position(net, x):
    net.b.index_copy_(2, net.p.view(1), net.q(x[:2])[None, :, None])
    net.p.add_(1).remainder_(5)
    return nn.functional.scaled_dot_product_attention(net.b, net.b, net.b), net.p.clone()


@model(X, edges=False, layer=nn.Linear(4, 4), b=torch.zeros(3, 4))
def old_and_new_through_one_layer(net, x):
    old = net.layer(net.b)
    net.b.add_(x)
    return old + net.layer(net.b)


@model(random(4, 4, 3, 3), edges=False, norm=nn.BatchNorm2d(4))
def norm_that_learns(net, x):
    return net.norm.train()(x)
