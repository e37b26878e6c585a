"""Faults of XNNPACK's partitioner, compiler and runtime: floats."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

from etdev.schema.fault import Fault
from support.quirks import Repro, model, repro
from support.zoo import random

X = random(8, 8)
IMAGE = random(1, 4, 8, 8)
NAN = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30, -1e30, 1.0, 0.0, -0.0])


def xnnpack(module, *calls, **options) -> Repro:
    """A repro on XNNPACK with the inputs of its calls."""
    return Repro(module.eval(), calls, backend="xnnpack", **options)


def norm(channels=4, **options):
    """A batch norm with statistics of its own."""
    layer = nn.BatchNorm2d(channels, **options)
    for value in (layer.weight, layer.running_mean):
        if value is not None:
            nn.init.normal_(value)
    nn.init.uniform_(layer.running_var, 0.5, 1)
    return layer


@repro
def batches_below_16() -> Repro:
    calls = [random(rows, 4, 8, 8) for rows in (2, 16, 1, 32)]
    shapes = (({0: Dim("rows", min=1, max=32)},),)
    net = model(lambda net, x: net.conv(x), conv=nn.Conv2d(4, 4, 3))
    return xnnpack(net, *calls, dynamic_shapes=shapes, expects="error")


@repro
def bounds_left_out() -> Repro:
    def bounded(net, x):
        return functional.hardtanh(x, 0, 1), functional.hardtanh(net.layer(x), -3, 1)

    return xnnpack(model(bounded, layer=nn.Linear(8, 8)), X, X + 1, expects="error")


@repro
def freed_constants() -> Repro:
    def read(net, x):
        return net.layer(x), net.layer.weight * x[:1]

    return xnnpack(model(read, layer=nn.Linear(8, 8)), X, X + 1, expects="crash")


@repro
def kernels_of_two_layers() -> Repro:
    def both(net, x):
        return functional.conv_transpose2d(functional.conv2d(x, net.w), net.w)

    return xnnpack(model(both, w=random(4, 4, 3, 3)), IMAGE)


@repro
def kernels_read_as_tensors() -> Repro:
    def both(net, x):
        return functional.conv2d(x, net.w)[..., :3, :3] + net.w * x.sum()

    return xnnpack(model(both, w=random(4, 4, 3, 3)), IMAGE, expects="error")


@repro
def norms_of_one_layer() -> Repro:
    def both(net, x):
        return net.a(net.conv(x)) + net.b(net.conv(x * 2))

    return xnnpack(model(both, conv=nn.Conv2d(4, 4, 3), a=norm(), b=norm()), IMAGE)


@repro
def norms_without_weights() -> Repro:
    def both(net, x):
        return net.a(x), net.b(x)

    return xnnpack(model(both, a=norm(affine=False), b=norm(affine=False)), IMAGE)


@repro
def norms_of_norms() -> Repro:
    both = model(lambda net, x: net.b(net.a(x * 2)), a=norm(), b=norm())
    return xnnpack(both, IMAGE, expects="error")


@repro
def one_dimensional_kernels_called_twice() -> Repro:
    layer = nn.Conv1d(4, 4, 3, padding=1)
    twice = model(lambda net, x: net.conv(net.conv(x)), conv=layer)
    return xnnpack(twice, random(1, 4, 8), expects="error")


@repro
def layers_of_two_dynamic_sizes() -> Repro:
    shapes = ({0: Dim("b", min=1, max=4), 2: Dim("t", min=4, max=9)},)
    calls = random(2, 3, 6), random(4, 3, 9), random(1, 3, 4)
    return xnnpack(nn.Conv1d(3, 3, 3), *calls, dynamic_shapes=shapes, expects="error")


@repro
def unsqueezes_of_two_dynamic_sizes() -> Repro:
    shapes = (({0: Dim("b", min=1, max=4), 2: Dim("t", min=4, max=9)},),)
    calls = random(2, 3, 6), random(4, 3, 9), random(1, 3, 4)
    unsqueezed = model(lambda _, x: x.unsqueeze(-1) * 2)
    return xnnpack(unsqueezed, *calls, dynamic_shapes=shapes, expects="error")


@repro
def xnnpack_channels_last_weights() -> Repro:
    layer = nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)
    return xnnpack(layer, IMAGE.to(memory_format=torch.channels_last), expects="error")


@repro
def written_kernels() -> Repro:
    def step(net, x):
        out = functional.conv2d(x, net.w)
        net.w.add_(1)
        return out

    return xnnpack(model(step, w=random(4, 4, 3, 3)), IMAGE, IMAGE, expects="crash")


@repro
def written_biases() -> Repro:
    def step(net, x):
        out = functional.linear(x, net.w, net.b)
        net.b.add_(1)
        return out

    parts = {"w": random(8, 8, seed=1), "b": random(8)}
    return xnnpack(model(step, **parts), X, X, expects="crash")


@repro
def slices_from_before_the_start() -> Repro:
    return xnnpack(model(lambda _, x: x[:, -100:3] * 2), X, expects="error")


@repro
def copies_of_outputs() -> Repro:
    def copied(_, x):
        y = x + 1
        return y, y.clone(), y.clone().relu()

    return xnnpack(model(copied), X, expects="error")


@repro
def reductions_without_keepdim() -> Repro:
    return xnnpack(model(lambda _, x: x.max(3)[0]), IMAGE, expects="error")


@repro
def reductions_of_channels() -> Repro:
    return xnnpack(model(lambda _, x: x.max(1, keepdim=True)[0]), IMAGE, expects="error")


@repro
def images_without_a_batch() -> Repro:
    return xnnpack(model(lambda _, x: functional.max_pool2d(x, 2)), IMAGE[0], expects="error")


@repro
def slopes_of_matrices() -> Repro:
    return xnnpack(nn.PReLU(8), X, expects="error")


@repro
def permutes_of_numbers() -> Repro:
    return xnnpack(model(lambda _, x: x.permute(())), torch.tensor(2.0), expects="error")


@repro
def factors_of_products() -> Repro:
    def product(net, x):
        return torch.addmm(net.b, x, net.w, beta=0.5, alpha=2)

    return xnnpack(model(product, w=random(8, 8, seed=1), b=random(8)), X)


@repro
def limits_left_out() -> Repro:
    # torch leaves out an argument that is as by default, here the 1.
    return xnnpack(nn.Sequential(nn.Linear(8, 8), nn.Hardtanh(0, 1)), X * 3, expects="error")


@repro
def activations_in_a_row() -> Repro:
    rows = [
        nn.Sequential(nn.Linear(8, 8), nn.ReLU6(), nn.ReLU()),
        nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Hardtanh(-0.5, 2)),
        nn.Sequential(nn.Linear(8, 8), nn.Hardtanh(-0.3, 0.2), nn.Hardtanh(-0.2, 0.3), nn.ReLU()),
        nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.ReLU()),
    ]
    return xnnpack(
        model(lambda net, x: [row(x) for row in net.rows], rows=nn.ModuleList(rows)), X * 9
    )


@repro
def symbolic_factors() -> Repro:
    shapes = (({0: Dim("rows", min=2, max=8)},),)
    added = model(lambda _, x: torch.add(x, x.exp(), alpha=x.shape[0]) + 1)
    return xnnpack(added, X[:3], X, dynamic_shapes=shapes, expects="error")


@repro
def softmax_of_images() -> Repro:
    def heat(net, x):
        return net.layer(x).softmax(-1), (x - x.mean((2, 3), keepdim=True)).softmax(-1)

    return xnnpack(model(heat, layer=nn.Conv2d(4, 4, 1)), IMAGE, IMAGE + 1)


@repro
def seven_dimensions() -> Repro:
    seven = model(lambda _, x: x.view(1, 2, 2, 2, 2, 2, 2) + 1)
    return xnnpack(seven, X, expects="error")


@repro
def tanh_gelus() -> Repro:
    return xnnpack(nn.GELU("tanh"), X * 2)


@repro
def vmapped_layers() -> Repro:
    vmapped = model(lambda net, x: torch.vmap(lambda row: net.layer(row))(x), layer=nn.Linear(8, 8))
    return xnnpack(vmapped, X)


@repro
def products_of_hooks() -> Repro:
    net = model(lambda net, x: net.layer(x), layer=nn.Linear(8, 8), w=random(8, 8, seed=1))
    net.layer.register_forward_hook(lambda layer, inputs, output: output + inputs[0] @ net.w)
    return xnnpack(net, X)


ROWS = {0: Dim("rows", max=8)}
# XNNPACK reads or returns memory that nobody wrote, which may be right, wrong, or fail.
LUCK = {"expects": "error", "undefined": True}


@repro
def convolutions_of_no_rows() -> Repro:
    calls = [random(rows, 4, 6, 6) for rows in (3, 0, 8)]
    return xnnpack(nn.Conv2d(4, 2, 3), *calls, dynamic_shapes=(ROWS,), **LUCK)


@repro
def pools_of_no_rows() -> Repro:
    calls = [random(rows, 4, 6, 6) for rows in (3, 0, 8)]
    return xnnpack(
        nn.AvgPool2d(2),
        *calls,
        dynamic_shapes=(ROWS,),
        fault=Fault(upstream="", since="executorch 1.5"),
        **LUCK,
    )


@repro
def products_of_no_rows() -> Repro:
    calls = [random(2, rows, 4) for rows in (3, 0, 8)]
    product = model(lambda _, x: torch.bmm(x, x.mT))
    return xnnpack(product, *calls, dynamic_shapes=(({1: ROWS[0]},),), **LUCK)


@repro
def lost_nan() -> Repro:
    return xnnpack(model(lambda _, x: (x.exp(), x.sqrt(), x.maximum(x.flip(0)))), X[0], NAN)


@repro
def huge_values() -> Repro:
    return xnnpack(model(lambda _, x: (x.sigmoid(), x.sin())), X[0], X[0] * 1e30)


@repro
def lost_nan_of_halves() -> Repro:
    return xnnpack(model(lambda _, x: x.relu()), X[0].half(), NAN.half())


@repro
def spread_infinities() -> Repro:
    x = IMAGE.clone()
    x[0, 0, 0, 7] = torch.inf
    taps = model(lambda net, x: functional.conv2d(x, net.w, groups=4), w=torch.ones(4, 1, 2, 3))
    return xnnpack(taps, IMAGE, x)
