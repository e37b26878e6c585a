"""Sessions: series of calls of a method in eager PyTorch, which a .pte has to repeat."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import torch
from attrs import define, evolve, field, frozen

from etdev.edge.reference import Reference, called, duplicates, modules_of
from etdev.edge.simplify import folding
from etdev.errors import EtdevError, VerifyError
from etdev.graph.nodes import graph_modules
from etdev.verify.inputs import Samples
from etdev.verify.tolerance import TINY, Tolerance, mismatch

# Calls that show how far outputs move.
_RUNS = 16


@frozen(eq=False)
class EagerCall:
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
class Eager:
    """Methods in eager PyTorch, which share the state that their modules share.

    Args:
        references: The methods.
    """

    references: Sequence[Reference]
    _modules: list[torch.nn.Module] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._modules = modules_of(self.references)

    def state(self, reference: Reference) -> dict[str, Any]:
        """Return copies of the values that the state of a method has now."""
        module = self._modules[self.references.index(reference)]
        held = chain(module.named_parameters(), module.named_buffers())
        return {name: value.detach().clone() for name, value in held if name in reference.state}

    def call(self, reference: Reference, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Call a method as `called` does; a call that fails leaves the state as it was."""
        _, structure = reference.example()
        modules = duplicates(self._modules, [known.state for known in self.references])
        result = called(modules[self.references.index(reference)], inputs, structure)
        self._modules = modules
        return result


@define(eq=False)
class Session:
    """Consecutive calls of a method in eager PyTorch, each with the state that the last one left.

    A .pte has to repeat them in one loaded method.
    """

    reference: Reference
    samples: Samples
    eager: Eager
    calls: list[EagerCall] = field(factory=list, init=False)

    @property
    def is_conclusive(self) -> bool:
        """Return True if the calls return values that a wrong program may not return.

        Those are finite numbers, text, and sizes of integers that differ from call to call. Numbers
        that a kernel may take for 0 are none.
        """
        values = [value for call in self.calls for value in call.outputs]
        sizes = {tuple(map(_size_of_integers, call.outputs)) for call in self.calls}
        return any(map(_is_exact, values)) or len(sizes) > 1

    def call(self, attempts: Iterable[Sequence[Any]], edge: str = "") -> None:
        """Call the method with the first inputs that eager PyTorch takes, if it takes any."""
        before = self.eager.state(self.reference)
        for inputs in attempts:
            try:
                outputs, after = self.eager.call(self.reference, inputs)
            except Exception:
                continue
            self.calls.append(EagerCall(inputs, outputs, after, before, edge))
            return

    def repeat(self, call: EagerCall) -> None:
        """Call the method with the inputs of an earlier call, whose values a state may change."""
        if self.reference.state:
            self.call([call.inputs])
        else:
            self.calls.append(call)

    def perturbed(self, call: EagerCall, error: float, tied: bool = False) -> Iterator[list[Any]]:
        """Yield the outputs of a call whose inputs and weights have relative errors, up or down.

        With `tied`, equal numbers of a tensor stay equal.
        """
        numbers, (_, structure) = torch.Generator().manual_seed(0), self.reference.example()

        def off(value: Any) -> Any:
            if not _is_float(value):
                return value
            known, places = torch.unique(value, return_inverse=True) if tied else (value, ...)
            signs = torch.randint(2, known.shape, generator=numbers)[places] * 2 - 1
            return value + value * error * signs

        # Such as a module that can't be copied.
        with suppress(Exception), torch.no_grad():
            for _ in range(_RUNS):
                module = self._module_before(call)
                for weight in chain(module.parameters(), module.buffers()):
                    weight.copy_(off(weight))
                yield called(module, list(map(off, call.inputs)), structure)[0]

    def exact(self, call: EagerCall) -> list[Any]:
        """Return the outputs of a call with floats computed in float64; none where it can't."""
        _, structure = self.reference.example()
        with suppress(Exception):
            again, _ = called(self._module_before(call), call.inputs, structure)
            # State in Python may have changed since then.
            if mismatch(again, call.outputs, Tolerance(1e-4)):
                return []
            module = self._module_before(call).double()
            inputs = [value.double() if _is_float(value) else value for value in call.inputs]
            outputs, _ = called(module, inputs, structure)
            pairs = zip(outputs, call.outputs, strict=True)
            return [made.to(own.dtype) if _is_float(own) else own for made, own in pairs]
        return []

    def _module_before(self, call: EagerCall) -> torch.nn.Module:
        """Return a copy of the module with the state that it had before a call."""
        (module,) = copy.deepcopy(modules_of([evolve(self.reference, state=call.state)]))
        return module


def session_of(
    reference: Reference, given: Sequence[Sequence[Any]], steps: int, resized: bool = False
) -> Session:
    """Call a method by itself, as `plays` does."""
    session = new_session(reference, given, Eager([reference]))
    for _ in plays(session, given, steps, resized):
        pass
    return session


def new_session(reference: Reference, given: Sequence[Sequence[Any]], eager: Eager) -> Session:
    """Return a session without calls, whose fresh inputs are like the given ones."""
    example, _ = reference.example()
    samples = Samples(reference.program, list(given[-1]) if given else example)
    return Session(reference, samples, eager)


def plays(
    session: Session, given: Sequence[Sequence[Any]], steps: int, resized: bool = False
) -> Iterator[None]:
    """Call a method with the given inputs, and with fresh ones up to `steps`; yield after each.

    With `resized`, each fresh call of a method with dynamic sizes is made twice, and the first one
    again at the end: sizes grow, shrink, and stay as they are after both.
    """
    for inputs in given:
        session.call([inputs])
        yield
    for step in range(len(given), steps):
        session.call(session.samples.attempts(step))
        yield
        if step and resized and session.samples.is_dynamic and session.calls:
            session.repeat(session.calls[-1])
            yield
    if not session.calls:
        which = "the given" if given else "its example"
        what = f"eager PyTorch can't run {which} inputs"
        name = session.reference.method.name
        raise VerifyError(f"method {name!r}", what, "give inputs that it takes")
    if len(session.calls) > max(steps, len(given)):
        session.repeat(session.calls[0])
        yield


def interleaved(
    sessions: Mapping[str, Session], playing: Mapping[str, Iterator[None]]
) -> tuple[list[tuple[str, EagerCall]], dict[str, EtdevError]]:
    """Make the calls of sessions in a random order, and return it, with the errors by method."""
    order: list[tuple[str, EagerCall]] = []
    errors: dict[str, EtdevError] = {}
    left, numbers = dict(playing), random.Random(0)
    while left:
        name = numbers.choice(list(left))
        done = len(sessions[name].calls)
        try:
            if next(left[name], left) is left:
                del left[name]
        except EtdevError as error:
            errors[name] = error
            del left[name]
        order += [(name, call) for call in sessions[name].calls[done:]]
    return order, errors


def is_random(reference: Reference) -> bool:
    """Return True if two calls differ that are equal but for the seed of random numbers."""
    graphs = [module.graph for module in graph_modules(reference.program.graph_module)]
    if not any(folding.is_random(node) for graph in graphs for node in graph.nodes):
        return False
    leaves, _ = reference.example()
    results = []
    with torch.random.fork_rng(devices=[]), suppress(Exception):
        for seed in range(2):
            before = torch.manual_seed(seed).get_state()
            results.append(Eager([reference]).call(reference, leaves)[0])
            # Dropout draws no numbers in a model that is not trained.
            if torch.equal(before, torch.get_rng_state()):
                return False
    return len(results) == 2 and bool(mismatch(results[0], results[1], Tolerance(1e-9)))


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_exact(value: Any) -> bool:
    numbers = torch.tensor(0) if isinstance(value, str) else torch.as_tensor(value)
    finite = numbers[numbers.isfinite()].to(torch.complex128).abs()
    return bool(((finite == 0) | (finite >= TINY)).any())


def _size_of_integers(value: Any) -> Any:
    is_whole = isinstance(value, torch.Tensor) and not value.is_floating_point()
    return value.shape if is_whole else None
