"""Sessions: series of calls of a method in eager PyTorch, which a .pte has to repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from attrs import frozen

from etdev.edge.reference import Reference, called, duplicate
from etdev.errors import VerifyError
from etdev.runtime.compare import Tolerance, mismatch
from etdev.runtime.samples import Samples


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
        given: Inputs of the first calls; those of later calls are made like them.
        steps: Number of calls in the first session.
        edges: Add sessions with the edge values of each dtype.

    Returns:
        A session whose calls carry the state on, then a session for each edge value.

    Raises:
        VerifyError: Eager PyTorch can't run the method.
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
    """Return True if two calls differ that are equal but for the seed of random numbers."""
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
    return mismatch(first, second, Tolerance(1e-9)) is not None


def _session(
    reference: Reference, attempts: Sequence[Iterator[list[Any]]], structure: Any
) -> list[Call]:
    """Call a method once per step; a step is left out if eager PyTorch takes none of its inputs.

    Each call has a copy of the module, because a call that fails may have written to it.
    """
    module, state, calls = reference.module(), reference.state, []
    for step in attempts:
        held = chain(module.named_parameters(), module.named_buffers())
        before = {name: value.detach().clone() for name, value in held if name in state}
        for inputs in step:
            trial = duplicate(module, state)
            try:
                outputs, after = called(trial, inputs, structure)
            except Exception:
                continue
            calls.append(Call(inputs, outputs, after, before))
            module = trial
            break
    return calls
