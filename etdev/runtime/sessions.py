"""Sessions: calls of a method in eager PyTorch, which a .pte has to repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import frozen

from etdev.edge.calls import called, duplicate
from etdev.edge.reference import Reference
from etdev.errors import VerifyError
from etdev.runtime.samples import Samples
from etdev.runtime.tolerance import Tolerance
from etdev.runtime.wrong import wrong


@frozen(eq=False)
class Call:
    """A call in eager PyTorch.

    Args:
        inputs: Its inputs, flat, None included.
        outputs: Its outputs, flat.
        after: Its inputs after it, flat.
        state: Values of mutated buffers and parameters before it, by name.
    """

    inputs: Sequence[Any]
    outputs: Sequence[Any]
    after: Sequence[Any]
    state: Mapping[str, Any]


def sessions_of(
    reference: Reference, given: Sequence[Sequence[Any]], steps: int, edges: bool
) -> list[list[Call]]:
    """Call a method in eager PyTorch.

    Args:
        reference: The method.
        given: Inputs of the first calls; later ones are made like them.
        steps: How many calls carry the state on.
        edges: Call it with the edge values of each dtype, too.

    Returns:
        The calls that carry the state on, then a session for each edge value.

    Raises:
        VerifyError: Eager PyTorch can't run it.
    """
    example, structure = reference.example()
    samples = Samples(reference.program, list(given[-1]) if given else example)
    attempts = [iter([list(inputs)]) for inputs in given]
    attempts += [samples.attempts(step) for step in range(len(attempts), steps)]
    first = _session(reference, attempts, structure)
    if not first:
        which = "the given" if given else "its example"
        what = f"eager PyTorch can't run {which} inputs"
        raise VerifyError(f"method {reference.method.name!r}", what, "give inputs that it takes")
    others = samples.edges() if edges else ()
    sessions = [first, *(_session(reference, [iter(values)], structure) for values in others)]
    return [session for session in sessions if session]


def is_random(reference: Reference) -> bool:
    """Whether two calls that are equal but for the seed of random numbers differ."""
    leaves, structure = reference.example()
    results = []
    with torch.random.fork_rng(devices=[]):
        for seed in range(2):
            torch.manual_seed(seed)
            try:
                results.append(called(reference.module(), leaves, structure)[0])
            except Exception:
                return False
    first, second = results
    return wrong(first, second, Tolerance(1e-9)) is not None


def _session(
    reference: Reference, attempts: Sequence[Iterator[list[Any]]], structure: Any
) -> list[Call]:
    """Calls with inputs that eager PyTorch takes; a step for which it takes none is left out."""
    module, calls = reference.module(), []
    for step in attempts:
        if ran := _first_that_runs(module, step, structure, reference.state):
            module, call = ran
            calls.append(call)
    return calls


def _first_that_runs(
    module: torch.nn.Module,
    attempts: Iterator[list[Any]],
    structure: Any,
    state: Mapping[str, Any],
) -> tuple[torch.nn.Module, Call] | None:
    """Call a copy of a module with the first inputs that it takes; returns the copy and the call.

    A call that fails may have written to the copy, which is therefore dropped.
    """
    before = {name: value.detach().clone() for name, value in _tensors(module) if name in state}
    for inputs in attempts:
        trial = duplicate(module, state)
        try:
            outputs, after = called(trial, inputs, structure)
        except Exception:
            continue
        return trial, Call(inputs, outputs, after, before)
    return None


def _tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
