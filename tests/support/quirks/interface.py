"""Faults of what a method is given and returns, and of what torch.export traces of it."""

from __future__ import annotations

import torch
from torch.export import Dim

from support.quirks import Repro, model, repro
from support.toys.gpu_tensors import OnGpu
from support.zoo import random

X = random(3, 4)


@repro
def forgotten_state() -> Repro:
    def count(net, x):
        net.calls += 1
        return x * net.calls

    module = model(count)
    module.calls = 0
    return Repro(module, [X, X])


@repro
def replaced_buffers() -> Repro:
    def step(net, x):
        old, net.state = net.state, net.state + x
        return old

    return Repro(model(step, state=torch.ones(3, 4)), [X, X])


@repro
def merged_inputs() -> Repro:
    return Repro(model(lambda _, x, y: x - y), [(X, X), (X, X + 1)])


@repro
def sparse_tensors() -> Repro:
    def product(net, x):
        return net.weight @ x.T

    return Repro(model(product, weight=torch.eye(4).to_sparse()), [X], expects="error")


@repro
def weights_elsewhere() -> Repro:
    module = model(lambda net, x: x @ net.weight + net.bias, weight=OnGpu(random(4, 5)))
    module.bias = torch.nn.Parameter(OnGpu(random(5)), requires_grad=False)
    return Repro(module, [X], (OnGpu(X),), expects="crash")


@repro
def python_inputs() -> Repro:
    module = model(lambda _, x, n: x * n)
    return Repro(module, [(X, 3), (X, 4)], dynamic_shapes=((None, Dim.DYNAMIC),), expects="error")


@repro
def string_inputs() -> Repro:
    return Repro(model(lambda _, x, unit: x * len(unit)), [(X, "abc")], expects="error")


@repro
def no_tensor_outputs() -> Repro:
    return Repro(model(lambda _, x: x.argmax().item()), [X], expects="error")


@repro
def unwritable_nesting() -> Repro:
    return Repro(model(lambda _, x: x.max(1)), [X], expects="error")


@repro
def ignored_inputs() -> Repro:
    # Strictly exported repros are given to etdev as programs.
    difference = model(lambda _, x, y: x - y)
    return Repro(difference, [(X, X + 1)], example=(X, X), strict=True)


@repro
def untraceable_inputs() -> Repro:
    with torch.inference_mode():
        x = X + 0
    return Repro(torch.nn.Linear(4, 3), [X], example=(x,), gradients=True, expects="error")


@repro
def reserved_names() -> Repro:
    return Repro(model(lambda net, x: x * net.meta, meta=random(4)), [X], expects="error")
