"""Kinds of faults that a backend's compiler may have, and models in which they can occur."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from executorch.exir.dialects._ops import ops as edge_ops
from executorch.exir.pass_base import ExportPass, NodeMetadata
from torch import nn
from torch.export import Dim

from support.toys.nested import Fault

# A kind, with what a model must have for it to occur; empty for any model.
KINDS = {
    "at one size in between": "sizes",
    "above a size": "sizes",
    "at a multiple of 4": "sizes",
    "at size 1": "sizes",
    "when a size shrinks": "sizes",
    "at ties": "argmax",
    "at exact multiples": "division",
    "at zero": "",
    "at negative values": "",
    "at values above 100": "",
    "at integers": "",
    "in one branch": "branches",
    "in one element of 10,000": "map",
    "in the last row": "",
    "in one channel beside a large one": "large",
    "in one output of three": "three",
    "from the third call": "",
    "after a reset": "reset",
    "for one value of an integer input": "integer",
    "by 1e-3 beside a fill of -1e9": "fill",
}

aten = edge_ops.edge.aten
_END = 2**63 - 1


class Altered(ExportPass):
    """A pass that alters what reads an input, an op, or the first outputs.

    Args:
        reads: Changes the input `x` for those that read it.
        op: The op that `instead` replaces.
        outputs: Changes the list of outputs.
    """

    def __init__(
        self,
        reads: Callable[[Any, Any], Any] | None = None,
        op: Any = None,
        instead: Callable[..., Any] | None = None,
        outputs: Callable[[Any, list[Any]], list[Any]] | None = None,
    ) -> None:
        super().__init__()
        self.reads, self.op, self.instead, self.outputs = reads, op, instead, outputs

    def make(self, op, *args):
        return super().call_operator(op, args, {}, NodeMetadata({}))

    def call_operator(self, op, args, kwargs, meta):
        if self.reads:
            args = [self.reads(self, v) if _is_input(v) else v for v in args]
        if self.instead and op is self.op:
            return self.instead(self, *args)
        return super().call_operator(op, tuple(args), kwargs, meta)

    def output(self, results, meta):
        if self.outputs:
            results = self.outputs(self, list(results))
        return super().output(results, meta)


def _is_input(value: Any) -> bool:
    node = getattr(value, "node", None)
    return node is not None and node.op == "placeholder" and node.name == "x"


def _reads(op: Any, *rest: Any) -> Callable[[], ExportPass]:
    return lambda: Altered(reads=lambda to, x: to.make(op, x, *rest))


def _marked(mark: Callable[[Any, Any], Any]) -> Callable[[], ExportPass]:
    """Alter by 0.05 the numbers that a condition is true of."""

    def reads(to, x):
        number = to.make(aten._to_copy.default, mark(to, x))
        number = to.make(aten.where.self, number, to.make(aten.full_like.default, x, 0.05),
                         to.make(aten.full_like.default, x, 0.0))  # fmt: skip
        return to.make(aten.add.Tensor, x, number)

    return lambda: Altered(reads=reads)


def _output(change: Callable[[Any, Any], Any], index: int = 0) -> Callable[[], ExportPass]:
    def outputs(to, results):
        results[index] = change(to, results[index])
        return results

    return lambda: Altered(outputs=outputs)


def _in_part(dim: int, start: int, end: int = _END) -> Callable[[Any, Any], Any]:
    """Alter by 0.05 the part of an output from an index on."""

    def change(to, x):
        before = to.make(aten.slice_copy.Tensor, x, dim, 0, start)
        part = to.make(aten.slice_copy.Tensor, x, dim, start, end)
        parts = [before, to.make(aten.add.Scalar, part, 0.05)]
        if end != _END:
            parts.append(to.make(aten.slice_copy.Tensor, x, dim, end, _END))
        return to.make(aten.cat.default, parts, dim)

    return change


def _last_of_ties(to, x, dim=None, keepdim=False):
    last = to.make(aten.argmax.default, to.make(aten.flip.default, x, [dim]), dim, keepdim)
    size = x.data.shape[dim]
    return to.make(aten.add.Scalar, to.make(aten.neg.default, last), size - 1)


def _below(to, x):
    return to.make(aten.sub.Scalar, to.make(aten.ceil.default, x), 1)


def _one_element(to, x):
    flat = to.make(aten.view_copy.default, x, [-1])
    return to.make(aten.view_copy.default, _in_part(0, 5000, 5001)(to, flat), [*x.data.shape])


def _off(to, x):
    return to.make(aten.add.Scalar, x, 0.05)


FAULTS = {
    "at one size in between": Fault(_output(_off), "size", 7, "x"),
    "above a size": Fault(_output(_off), "above", 11, "x"),
    "at a multiple of 4": Fault(_output(_off), "multiple", 4, "x"),
    "at size 1": Fault(_output(_off), "size", 1, "x"),
    "when a size shrinks": Fault(_output(_off), "shrunk", 0, "x"),
    "at ties": Fault(lambda: Altered(op=aten.argmax.default, instead=_last_of_ties)),
    "at exact multiples": Fault(lambda: Altered(op=aten.floor.default, instead=_below)),
    "at zero": Fault(_marked(lambda to, x: to.make(aten.eq.Scalar, x, 0))),
    "at negative values": Fault(_reads(aten.relu.default)),
    "at values above 100": Fault(_reads(aten.clamp.default, None, 100)),
    "at integers": Fault(
        _marked(lambda to, x: to.make(aten.eq.Tensor, x, to.make(aten.round.default, x)))
    ),
    "in one branch": Fault(
        lambda: Altered(op=aten.sin.default, instead=lambda to, x: to.make(aten.cos.default, x))
    ),
    "in one element of 10,000": Fault(_output(_one_element)),
    "in the last row": Fault(_output(_in_part(-2, -1))),
    "in one channel beside a large one": Fault(_output(_in_part(1, 3, 4))),
    "in one output of three": Fault(_output(_off, 1)),
    "from the third call": Fault(_output(_off), "from call", 3),
    "after a reset": Fault(_output(_off), "reset", 0, "b_hidden"),
    "for one value of an integer input": Fault(_output(_off), "value", 11, "p"),
    "by 1e-3 beside a fill of -1e9": Fault(
        _output(lambda to, x: to.make(aten.add.Scalar, x, 1e-3))
    ),
}


class Perceptron(nn.Module):
    """Layers for a batch, the place of the largest feature, and steps of 0.3."""

    has = ("sizes", "argmax", "division", "three")

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        return self.layers(x), torch.floor(x / 0.3), x.argmax(-1)

    @staticmethod
    def inputs():
        return (torch.randn(3, 32),), {"x": {0: Dim("rows", min=1, max=15)}}


class Convolutions(nn.Module):
    """A map of 10,240 numbers, one of its channels large, and the place of the largest colour."""

    has = ("argmax", "map", "large")

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 40, 3, padding=1)
        self.register_buffer("scale", torch.ones(40, 1, 1).index_fill(0, torch.tensor(0), 1e4))

    def forward(self, x):
        return self.second(self.first(x).relu()) * self.scale, x.argmax(1)

    @staticmethod
    def inputs():
        return (torch.rand(1, 3, 16, 16),), None


class Attention(nn.Module):
    """Causal scores with a fill, what they attend to, and the most attended."""

    has = ("sizes", "three", "fill")

    def __init__(self):
        super().__init__()
        self.parts = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.parts(x).chunk(3, -1)
        places = torch.arange(x.shape[1])
        scores = (q @ k.mT).masked_fill(places[:, None] < places, -1e9)
        return scores, scores.softmax(-1) @ v, scores.argmax(-1)

    @staticmethod
    def inputs():
        return (torch.randn(1, 5, 16),), {"x": {1: Dim("length", min=1, max=24)}}


class Recurrent(nn.Module):
    """A GRU's cell, whose state a flag resets."""

    has = ("reset",)

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        self.register_buffer("hidden", torch.zeros(2, 8))

    def forward(self, x, reset):
        hidden = self.cell(x, self.hidden)
        self.hidden.copy_(torch.where(reset, torch.zeros_like(hidden), hidden))
        return hidden

    @staticmethod
    def inputs():
        return (torch.randn(2, 8), torch.tensor(False)), None


class Branches(nn.Module):
    """A branch within a branch, by values and by an integer."""

    has = ("sizes", "branches", "integer")

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 8)

    def forward(self, x, p):
        def positive(y):
            return torch.cond((p > 9).all(), lambda y: y.sin(), lambda y: y * 2, (y,))

        return torch.cond(x.sum() > 40, positive, lambda y: y.tanh(), (x + self.table(p),))

    @staticmethod
    def inputs():
        return (torch.randn(3, 8), torch.tensor([5])), {
            "x": {0: Dim("n", min=1, max=15)},
            "p": None,
        }


MODELS = {
    "perceptron": Perceptron,
    "convolutions": Convolutions,
    "attention": Attention,
    "recurrent": Recurrent,
    "branches": Branches,
}


def kinds_in(model: Any) -> list[str]:
    """Return the kinds of faults that can occur in a model."""
    return [kind for kind, needed in KINDS.items() if not needed or needed in model.has]
