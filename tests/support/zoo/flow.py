"""Flow: conditions, maps and scans, in a row, in each other and with state."""

import torch
from torch import cond, nn
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan, while_loop

from support.zoo import Zoo, random

ZOO = Zoo()
X = random(3, 4)
BOTH = (X, -X.abs(), X.abs())
model = ZOO.model


@model(*BOTH, edges=False)
def conditions_in_a_row(net, x):
    a = cond(x.sum() > 0, lambda x: (x * 2).sin() + x, lambda x: (x * 3).cos() - x, (x,))
    b = cond(a.sum() > 0, lambda a: (a * 5).sin() * a, lambda a: (a - 3).exp().neg(), (a,))
    return a + b, a, b


@model(*BOTH)
def condition_in_a_condition(net, x):
    def inner(x):
        return cond(x.max() > 1, lambda x: x * 2, lambda x: x * 3, (x,))

    return cond(x.sum() > 0, inner, lambda x: x - 3, (x,))


@model(*BOTH, a=nn.Linear(4, 4), b=nn.Linear(4, 4))
def layer_inside_and_outside(net, x):
    return net.a(cond(x.sum() > 0, lambda x: net.a(x), lambda x: net.b(x), (x,)))


@model(*BOTH, b=torch.ones(4))
def branches_read_what_is_written(net, x):
    y = cond(x.sum() > 0, lambda x: x + net.b, lambda x: x - net.b, (x,))
    net.b.add_(1)
    return y * net.b


@model(X)
def branch_for_nan(net, x):
    return cond(x.isnan().any(), torch.nan_to_num, torch.neg, (x,))


@model(X)
def rows(net, x):
    return mapped(lambda row: row.sin() + 1, x)


@model(X)
def condition_in_a_map(net, x):
    return mapped(lambda row: cond(row.sum() > 0, lambda a: a * 2, lambda a: a - 1, (row,)), x)


@model(X)
def map_with_two_results(net, x):
    return mapped(lambda row: (row.sin() + 1, row.sum()), x)


@model(X, X + 1)
def map_over_two(net, x):
    return mapped(lambda pair: pair[0] * pair[1], (x, x + 1))


@model(X)
def running_sum(net, x):
    return scan(lambda total, row: (total + row, total * 2), torch.zeros(4), x, dim=0)


@model(X, h=torch.ones(4))
def scan_over_state(net, x):
    last, stacked = scan(lambda h, row: (h * 0.5 + row, h + row), net.h, x, dim=0)
    net.h.copy_(last)
    return stacked


@model(X)
def loop(net, x):
    def body(step, value):
        return step + 1, value * 2

    return while_loop(lambda step, value: step < 3, body, (torch.tensor(0), x))


@model(*BOTH, edges=False)
def literals_in_branches(net, x):
    def inner(x):
        return cond(x.max() > 1, lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.neg, (x,))

    return cond(x.sum() > 0, inner, lambda x: x * torch.tensor(2), (x,))


@model(X, edges=False)
def literal_in_a_map(net, x):
    return mapped(lambda row: row * torch.tensor([1.0, 2.0, 3.0, 4.0]), x)


@model(X, edges=False, b=random(2, 2))
def views_of_what_a_map_captures(net, x):
    seen = (x[0] * 2).view(2, 2)
    return mapped(lambda row: row + seen.view(4) * net.b.view(4), x)


@model(X, edges=False, b=random(2, 2))
def views_of_what_a_scan_carries_and_captures(net, x):
    def step(carried, row):
        return carried + net.b.view(4), (carried + row).view(2, 2) + carried.view(2, 2)

    return scan(step, torch.ones(4), x, dim=0)


@model(X, edges=False, layer=nn.Linear(4, 4))
def layer_over_what_a_scan_carries(net, x):
    return scan(lambda h, row: (net.layer(h) + row, h + row), torch.ones(4), x, dim=0)


@model(X, edges=False, cell=nn.GRUCell(4, 4))
def recurrent_cell_in_a_scan(net, x):
    def step(h, row):
        h = net.cell(row[None], h)
        return h, h.clone()

    return scan(step, torch.zeros(1, 4), x, dim=0)


@model(X, edges=False)
def two_carries_that_change_places(net, x):
    def step(carried, row):
        first, second = carried
        return (second.clone(), first + row), first * 1

    return scan(step, (torch.ones(4), torch.zeros(4)), x, dim=0)


@model(*BOTH, edges=False)
def map_in_a_condition(net, x):
    return cond(x.sum() > 0, lambda x: mapped(lambda row: row * 2 + 1, x), lambda x: x - 1, (x,))


@model(*BOTH, edges=False)
def five_conditions(net, x):
    results = []
    for step in range(5):
        x = cond(x.sum() > step, lambda x: (x * 1.5).sin() * 2, lambda x: x.cos() + 0.5, (x,))
        results.append(x)
    return results


@model(*BOTH, edges=False, a=torch.tensor(0), b=torch.tensor(0.0))
def conditions_on_two_states(net, x):
    y = cond(net.a % 2 == 0, lambda x: x + 1, lambda x: x - 1, (x,))
    z = cond(net.b > 1, lambda y: y * 2, lambda y: y * 3, (y,))
    net.a.add_(1)
    net.b.add_(y.mean().abs() + 0.4)
    return y, z


@model(*BOTH, edges=False, b=torch.zeros(2, 12))
def views_of_what_flows_return(net, x):
    y = cond(x.sum() > 0, lambda x: x * 3, lambda x: x - 2, (x,))
    net.b[torch.tensor([1])] = y.view(12)
    z = mapped(lambda row: row * 2, x)
    _, sums = scan(lambda h, row: (h + row, h * row), x[0].clone(), x)
    return y.view(2, 6) + 1, net.b.sum(0), z.view(-1) - 1, sums.reshape(6, 2) * 2
