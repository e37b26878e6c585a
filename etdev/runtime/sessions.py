"""Sessions: series of calls of a method in eager PyTorch, which a .pte has to repeat."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from attrs import define, field, frozen
from torch.fx import Node

from etdev.edge.reference import Reference, called, duplicate
from etdev.edge.simplify.folding import is_random as draws
from etdev.errors import VerifyError
from etdev.graph.nodes import graph_modules
from etdev.runtime.compare import Tolerance, mismatch
from etdev.runtime.samples import Samples
from etdev.upstream.operators import overload_of, schema_of


@frozen(eq=False)
class Call:
    """A call in eager PyTorch: flat inputs, outputs, inputs after it, and the state before it.

    Args:
        edge: The edge value that its inputs have; empty for ordinary inputs.
    """

    inputs: Sequence[Any]
    outputs: Sequence[Any]
    after: Sequence[Any]
    state: Mapping[str, Any]
    edge: str = ""


@define(eq=False)
class Session:
    """Consecutive calls of a method in eager PyTorch, each with the state that the last one left.

    A .pte has to repeat them in one loaded method.
    """

    reference: Reference
    samples: Samples
    calls: list[Call] = field(factory=list, init=False)
    _module: torch.nn.Module = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._module = self.reference.module()

    @property
    def tells(self) -> bool:
        """Return True if a call returns a finite value or text, which a wrong program may not."""
        values = [value for call in self.calls for value in call.outputs]
        tensors = [torch.as_tensor(value) for value in values if not isinstance(value, str)]
        floats = [t for t in tensors if t.is_floating_point() or t.is_complex()]
        return (
            len(tensors) < len(values)
            or any(bool(tensor.isfinite().any()) for tensor in floats)
            or any(tensor.numel() for tensor in tensors if not tensor.is_floating_point())
        )

    def call(self, attempts: Iterable[Sequence[Any]], edge: str = "") -> None:
        """Call the method with the first inputs that eager PyTorch takes, if it takes any.

        Each attempt has a copy of the module, because a call that fails may have written to it.
        """
        state, (_, structure) = self.reference.state, self.reference.example()
        held = chain(self._module.named_parameters(), self._module.named_buffers())
        before = {name: value.detach().clone() for name, value in held if name in state}
        for inputs in attempts:
            module = duplicate(self._module, state)
            try:
                outputs, after = called(module, inputs, structure)
            except Exception:
                continue
            self.calls.append(Call(inputs, outputs, after, before, edge))
            self._module = module
            return

    def repeat(self, call: Call) -> None:
        """Call the method with the inputs of an earlier call, whose values a state may change."""
        if self.reference.state:
            self.call([call.inputs])
        else:
            self.calls.append(call)

    def try_edges(self, all_values: bool) -> None:
        """Call the method with NaN and infinities, or with all edge values, and sizes of 0."""
        for edge, attempts in self.samples.edges(all_values):
            self.call(attempts, edge)


def session_of(
    reference: Reference, given: Sequence[Sequence[Any]], steps: int, resized: bool = False
) -> Session:
    """Call a method in eager PyTorch with the given inputs, and with fresh ones up to `steps`.

    With `resized`, each fresh call of a method with dynamic sizes is made twice, and the first one
    again at the end: sizes grow, shrink, and stay as they are after both.
    """
    example, _ = reference.example()
    samples = Samples(reference.program, list(given[-1]) if given else example)
    session = Session(reference, samples)
    for inputs in given:
        session.call([inputs])
    for step in range(len(given), steps):
        session.call(samples.attempts(step))
        if step and resized and samples.is_dynamic and session.calls:
            session.repeat(session.calls[-1])
    if not session.calls:
        which = "the given" if given else "its example"
        what = f"eager PyTorch can't run {which} inputs"
        raise VerifyError(f"method {reference.method.name!r}", what, "give inputs that it takes")
    if len(session.calls) > max(steps, len(given)):
        session.repeat(session.calls[0])
    return session


def interleaved(sessions: Mapping[str, Session]) -> list[tuple[str, Call]]:
    """Return the calls of all methods in a random order that keeps each method's own.

    Calls at edge values come last.
    """
    calls = {name: [c for c in s.calls if not c.edge] for name, s in sessions.items()}
    turns = [name for name, own in calls.items() for _ in own]
    random.Random(0).shuffle(turns)
    left = {name: iter(own) for name, own in calls.items()}
    mixed = [(name, next(left[name])) for name in turns]
    return mixed + [
        (name, c) for name, session in sessions.items() for c in session.calls if c.edge
    ]


def is_random(reference: Reference) -> bool:
    """Return True if two calls differ that are equal but for the seed of random numbers."""
    graphs = [module.graph for module in graph_modules(reference.program.graph_module)]
    if not any(draws(node) and not _keeps_all(node) for graph in graphs for node in graph.nodes):
        return False
    leaves, _ = reference.example()
    results = []
    with torch.random.fork_rng(devices=[]):
        for seed in range(2):
            torch.manual_seed(seed)
            try:
                results.append(reference.call(leaves)[0])
            except Exception:
                return False
    first, second = results
    return mismatch(first, second, Tolerance(1e-9)) is not None


def _keeps_all(node: Node) -> bool:
    """Return True if an op draws for dropout alone, outside of training or with probability 0."""
    op = overload_of(node.target)
    names = [argument.name for argument in schema_of(op).arguments] if op else []
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return given.get("train") is False or ("dropout_p" in names and not given.get("dropout_p"))
