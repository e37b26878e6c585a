"""Checks of values: delegates compute the values of eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from etdev.graph.nodes import graph_modules
from etdev.schema.dtypes import dtype_of
from etdev.testing import programs
from etdev.testing.checks.neighbours import contested
from etdev.testing.contract import contract
from etdev.testing.fakes import FAKE, Accelerator
from etdev.testing.programs import Branch, Counter, Layer, Pointwise, Scaled, Shared, X, Y, exported
from etdev.testing.subject import Skipped, Subject
from etdev.upstream.trees import pytree


def _values(subject: Subject, kind: Any, *calls: Any, dynamic: bool = False) -> None:
    program = exported(kind, dynamic)
    subject.looked |= subject.compare(subject.lowerer(), program, kind().eval(), calls)


def _own_values(subject: Subject, concerned: Callable[[ExportedProgram], object]) -> None:
    """Compare the author's models whose programs the check is about."""
    for model, calls in subject.models:
        program = programs.exported_own(model, calls)
        if concerned(program):
            # In sizes that grow and shrink.
            series = [*calls, *reversed(calls)]
            subject.looked |= subject.compare(subject.lowerer(), program, model, series)


@contract("its delegates compute PyTorch's values", "a fast wrong number is useless")
def values(subject: Subject) -> None:
    _values(subject, Pointwise, (X, Y), (Y, X))
    _values(subject, Layer, (X,), (Y,))


@contract(
    "its author's own models compute PyTorch's values",
    "the tiny programs have few ops, and a backend may be made for other ops",
)
def own_models(subject: Subject) -> None:
    if not subject.models:
        raise Skipped("no models are given")
    for model, calls in subject.models:
        program = programs.exported_own(model, calls)
        plan = subject.lowerer().plan(program)["forward"]
        assert subject.owned(plan), f"it claims nothing of {type(model).__name__}"
        subject.looked |= subject.compare(subject.lowerer(), program, model, calls)


@contract(
    "its delegates compute the same values before and after another backend's delegates",
    "no backend tests alone that its delegates work with those of another one",
)
def values_beside_others(subject: Subject) -> None:
    import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

    # A rival that runs in the same place as the plugin.
    backend = FAKE if subject.simulators else "XnnpackBackend"
    rival = Accelerator("rival", ("mul.Tensor",), backend=backend)
    cases: list[Any] = [(exported(Pointwise), Pointwise(), [(X, Y), (Y, X)], rival)]
    for model, calls in subject.models:
        # Delegates of dynamic sizes can't be run beside simulated ones.
        program = programs.noted(programs.export(model, calls[:1]))
        plan = subject.lowerer().plan(program)["forward"]
        rival = Accelerator("rival", nodes=contested(plan, subject))
        cases.append((program, model, [calls[0]] * 2, rival))
    for *case, rival in cases:
        for lowerer in (subject.lowerer(rival), subject.lowerer(first=[rival])):
            both = rival.name in lowerer.plan(case[0])["forward"].ledger.owned()
            subject.looked |= subject.compare(lowerer, *case) and both


@contract(
    "constants outside of its delegates, and shared ones, have the right values",
    "a weight that two delegates or a kernel read is stored once, or twice the same",
)
def shared_constants(subject: Subject) -> None:
    _values(subject, Shared, (X,), (Y,))
    _values(subject, Scaled, (X,), (Y,))
    _own_values(subject, lambda program: program.state_dict or program.constants)


@contract(
    "state that the method writes is right at every step",
    "a delegate with a frozen cache repeats the first token forever",
)
def state(subject: Subject) -> None:
    _values(subject, Counter, (X,), (Y,), (X,))
    _own_values(subject, lambda program: program.graph_signature.buffers_to_mutate)


@contract("control flow takes the right branch", "a delegate can't hold a branch")
def control_flow(subject: Subject) -> None:
    _values(subject, Branch, (X.abs(),), (-X.abs(),))
    _own_values(subject, lambda program: len(graph_modules(program.graph_module)) > 1)


@contract(
    "dynamic sizes come out in their own size, at the bounds too",
    "backends that plan for the largest size return the largest",
)
def dynamic_shapes(subject: Subject) -> None:
    rows = [torch.linspace(-1, 1, 4 * n).reshape(n, 4) for n in (1, 3, 8, 2, 1)]
    _values(subject, Layer, *[(x,) for x in rows], dynamic=True)
    _values(subject, Pointwise, *[(x, x + 1) for x in rows], dynamic=True)
    _own_values(subject, lambda program: program.range_constraints)


@contract(
    "other dtypes, NaN and infinities give PyTorch's values, or are not claimed",
    "a claim of unsupported values gives wrong numbers later",
)
def dtypes(subject: Subject) -> None:
    if not subject.requirements.dtypes:
        raise Skipped("requirements.dtypes is empty")
    own = ((Pointwise(), [(X, Y)]), *subject.models)
    for name in subject.requirements.dtypes:
        dtype = getattr(torch, name)
        for model, calls in filter(None, (_cast(*pair, dtype) for pair in own)):
            program = programs.noted(programs.export(model, calls))
            special = subject.requirements.special and dtype.is_floating_point
            series = [*calls, *_odd(calls[0])] if special else calls
            # Eager PyTorch rounds float16 and bfloat16 between any two ops.
            rounding = 5 * dtype_of(name).eps if dtype.itemsize == 2 else 0.0
            subject.looked |= subject.compare(subject.lowerer(), program, model, series, rounding)


def _cast(
    model: torch.nn.Module, calls: programs.Calls, dtype: torch.dtype
) -> tuple[torch.nn.Module, list[tuple[Any, ...]]] | None:
    """Return a model and its calls in another dtype; None if eager PyTorch can't run them."""
    cast = copy.deepcopy(model).eval()

    def converted(value: torch.Tensor) -> torch.Tensor:
        return value.to(dtype) if value.is_floating_point() else value

    given = pytree.tree_map_only(torch.Tensor, converted, [*map(tuple, calls)])
    try:
        if dtype.is_floating_point:
            cast.to(dtype)
        cast(*copy.deepcopy(given[0]))
    except Exception:  # Whatever torch raises.
        return None
    return cast, given


def _odd(inputs: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return calls with NaN and infinities in one input each."""
    calls = []
    for place, value in enumerate(inputs):
        if torch.is_tensor(value) and value.is_floating_point():
            odd = value.clone(memory_format=torch.contiguous_format)
            few = odd.view(-1)[:3]
            few.copy_(torch.tensor([float("nan"), float("inf"), -float("inf")])[: few.numel()])
            calls.append((*inputs[:place], odd, *inputs[place + 1 :]))
    return calls
