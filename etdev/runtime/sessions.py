"""Sessions: series of calls of a method in eager PyTorch, which a .pte has to repeat."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import torch
from attrs import define, field, frozen

from etdev.edge.reference import Reference, called, duplicate
from etdev.edge.simplify.folding import is_random as draws
from etdev.errors import VerifyError
from etdev.graph.nodes import graph_modules
from etdev.runtime.compare import Tolerance, mismatch
from etdev.runtime.samples import Samples


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
    def is_conclusive(self) -> bool:
        """Return True if the calls return values that a wrong program may not return.

        Those are finite numbers, text, and sizes of integers that differ from call to call.
        """
        values = [value for call in self.calls for value in call.outputs]
        sizes = {tuple(map(_size_of_integers, call.outputs)) for call in self.calls}
        finite = (isinstance(v, str) or bool(torch.as_tensor(v).isfinite().any()) for v in values)
        return any(finite) or len(sizes) > 1

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

    Calls at edge values, which each session made last, come last.
    """
    order = [name for name, own in sessions.items() for call in own.calls if not call.edge]
    random.Random(0).shuffle(order)
    left = {name: iter(session.calls) for name, session in sessions.items()}
    mixed = [(name, next(left[name])) for name in order]
    return mixed + [(name, call) for name, rest in left.items() for call in rest]


def is_random(reference: Reference) -> bool:
    """Return True if two calls differ that are equal but for the seed of random numbers."""
    graphs = [module.graph for module in graph_modules(reference.program.graph_module)]
    if not any(draws(node) for graph in graphs for node in graph.nodes):
        return False
    leaves, _ = reference.example()
    results = []
    with torch.random.fork_rng(devices=[]), suppress(Exception):
        for seed in range(2):
            torch.manual_seed(seed)
            results.append(reference.call(leaves)[0])
    return len(results) == 2 and bool(mismatch(results[0], results[1], Tolerance(1e-9)))


def _size_of_integers(value: Any) -> Any:
    is_float = not isinstance(value, torch.Tensor) or value.is_floating_point()
    return None if is_float else value.shape
