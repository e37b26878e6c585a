"""Programs over several devices, with the fewest copies each can do with, counted by hand."""

import torch
from attrs import frozen
from torch import nn
from torch.export import Dim

from etdev import Device, Lowerer
from support.toys.accelerator import Accelerator

X, Y = torch.randn(4, 4), torch.randn(4, 4)
scan = torch.cumsum


@frozen
class Case:
    """A program, what is where, and the fewest copies to a device and back."""

    name: str
    model: object
    places: dict
    minimum: tuple
    inputs: tuple = (X, Y)
    shapes: object = None
    constants: bool = True

    def lower(self):
        """Lowered with a plugin per op: `{"add": "cuda:0"}` puts additions on cuda:0."""
        plugins = [
            op if place == "plugin" else self._plugin(op, place)
            for op, place in self.places.items()
        ]
        return Lowerer(plugins).lower(self.model, *self._given(), dynamic_shapes=self.shapes)

    def _given(self):
        return () if isinstance(self.model, dict) else (self.inputs,)

    def _plugin(self, op, place):
        if place == "plugin":
            return op
        ops = tuple(f"{name}.Tensor" for name in op.split())
        name = op.replace(" ", "_")
        return Accelerator(name, ops=ops, device=Device.parse(place), constants=self.constants)


class Fn(nn.Module):
    """A module around a function, so that a case is a line."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(4, 4))

    def forward(self, x, y):
        self.state.copy_(self.state + x)
        return scan(y, 0) + x


class Reading(State):
    def forward(self, x, y):
        self.state.copy_(self.state + x)
        return scan(self.state, 0) * y


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4, 4))

    def forward(self, x, y):
        return scan(x * self.scale, 0) * self.scale


def four_times(x, y):
    for _ in range(3):
        x = scan(x + y, 0)
    return x + y


def diamond(x, y):
    a = x + y
    return scan(a, 0) + a * y


def branching(x, y):
    a = x + y
    return torch.cond(a.sum() > 0, lambda b: scan(b, 0), lambda b: scan(b, 1), (a,)) * y


ALL = "add mul sub"
ROWS = {name: {0: Dim("rows", max=32)} for name in ("x", "y")}
CASES = [
    Case("one delegate", Fn(lambda x, y: x + y), {ALL: "cuda:0"}, (2, 1)),
    Case("one input twice", Fn(lambda x, y: x + x), {ALL: "cuda:0"}, (1, 1)),
    Case("chain on one device", Fn(lambda x, y: (x + y) * y), {ALL: "cuda:0"}, (2, 1)),
    Case(
        "two plugins on one device",
        Fn(lambda x, y: (x + y) * y),
        {"add": "cuda:0", "mul": "cuda:0"},
        (2, 1),
    ),
    Case("kernel between", Fn(lambda x, y: scan(x + y, 0) + y), {ALL: "cuda:0"}, (3, 2)),
    Case("input of four delegates", Fn(four_times), {ALL: "cuda:0"}, (5, 4)),
    Case("diamond", Fn(diamond), {ALL: "cuda:0"}, (3, 2)),
    Case("diamond over two devices", Fn(diamond), {"add": "cuda:0", "mul": "cuda:1"}, (6, 3)),
    Case(
        "from device to device",
        Fn(lambda x, y: (x + y) * y),
        {"add": "cuda:0", "mul": "cuda:1"},
        (4, 2),
    ),
    Case(
        "three devices",
        Fn(lambda x, y: (x + y) * y - y),
        {"add": "cuda:0", "mul": "cuda:1", "sub": "cuda:2"},
        (6, 3),
    ),
    Case(
        "fan-out to device and host",
        Fn(lambda x, y: ((x + y) * y, scan(x + y, 0))),
        {"mul": "cuda:0"},
        (2, 1),
    ),
    Case(
        "output read by two devices and the host",
        Fn(lambda x, y: [(a := x + y) * y, scan(a, 0)]),
        {"add": "cuda:0", "mul": "cuda:1"},
        (4, 2),
    ),
    Case("two outputs", Fn(lambda x, y: (x + y, x - y)), {ALL: "cuda:0"}, (2, 2)),
    Case(
        "output that is read again",
        Fn(lambda x, y: ((a := x + y), a * y)),
        {"add": "cuda:0", "mul": "cuda:0"},
        (2, 2),
    ),
    Case(
        "XNNPACK between",
        Fn(lambda x, y: torch.sigmoid(x + y) * y),
        {ALL: "cuda:0", "cpu": "plugin"},
        (3, 2),
    ),
    Case(
        "two methods",
        {"one": (Fn(four_times), (X, Y)), "two": (Fn(diamond), (X, Y))},
        {ALL: "cuda:0"},
        (8, 6),
    ),
    Case("dynamic batch", Fn(four_times), {ALL: "cuda:0"}, (5, 4), shapes=ROWS),
    Case("buffer that a delegate owns", State(), {ALL: "cuda:0"}, (2, 1)),
    Case("buffer above the delegates", Reading(), {"add": "cuda:0"}, (2, 1)),
    Case("control flow between", Fn(branching), {ALL: "cuda:0"}, (3, 2)),
    Case("constant outside", Scale(), {ALL: "cuda:0"}, (3, 2), constants=False),
    Case("constants inside", Scale(), {ALL: "cuda:0"}, (2, 2)),
]
