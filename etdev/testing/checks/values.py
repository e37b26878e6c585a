"""Values: what delegates compute, held against eager PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from etdev.testing import programs
from etdev.testing.contract import contract, on
from etdev.testing.fakes import Accelerator
from etdev.testing.programs import Branch, Counter, Layer, Pointwise, Scaled, Shared, exported
from etdev.testing.subject import Skipped, Subject

X, Y = programs.X, programs.Y
# Two steps of rounding that eager PyTorch has between any two ops.
_HALF = 5e-3


def _values(subject: Subject, kind: Any, *calls: Any, dynamic: bool = False) -> bool:
    program = exported(kind, dynamic)
    with on(program):
        return subject.compare(subject.lowerer(), program, kind().eval(), calls)


def _something(*compared: bool) -> None:
    """Skip what says nothing, as the plugin had no part of any program."""
    if not any(compared):
        raise Skipped("it claims nothing of the programs")


@contract("its delegates compute what PyTorch does", "a fast wrong number is of no use")
def values(subject: Subject) -> None:
    pointwise = _values(subject, Pointwise, (X, Y), (Y, X))
    _something(pointwise, _values(subject, Layer, (X,), (Y,)))


@contract(
    "its author's own models compute what PyTorch does",
    "the tiny programs have few ops, and a backend may be made for others",
)
def own_models(subject: Subject) -> None:
    if not subject.models:
        raise Skipped("no models are given")
    for model, calls in subject.models:
        with torch.no_grad():
            program = torch.export.export(model.eval(), tuple(calls[0]))
        with on(program):
            compared = subject.compare(subject.lowerer(), program, model, calls)
            assert compared, f"it claims nothing of {type(model).__name__}"


@contract(
    "before and after another backend its delegates compute the same",
    "what one delegate gives another is what no backend tests on its own",
)
def values_beside_others(subject: Subject) -> None:
    import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

    simulated = subject.simulators.keys()
    # A rival that runs in the same place as the plugin.
    backend = "FakeAccelerator" if simulated else "XnnpackBackend"
    rival = Accelerator("rival", ops=("mul.Tensor",), backend=backend)
    program = exported(Pointwise)
    with on(program):
        lowerers = subject.lowerer(rival), subject.lowerer(first=[rival])
        calls = [(X, Y), (Y, X)]
        _something(*[subject.compare(one, program, Pointwise(), calls) for one in lowerers])


@contract(
    "what is left outside of it, or shared, has the right values",
    "a weight that two delegates or a kernel read is stored once, or twice the same",
)
def shared_constants(subject: Subject) -> None:
    _something(_values(subject, Shared, (X,), (Y,)), _values(subject, Scaled, (X,), (Y,)))


@contract(
    "state that the method writes is right at every step",
    "a cache that a delegate froze gives the first token for ever",
)
def state(subject: Subject) -> None:
    _something(_values(subject, Counter, (X,), (Y,), (X,)))


@contract("control flow takes the right branch", "a delegate can't hold a branch")
def control_flow(subject: Subject) -> None:
    _something(_values(subject, Branch, (X.abs(),), (-X.abs(),)))


@contract(
    "dynamic sizes come out in their own size, at the bounds too",
    "backends that plan for the largest size return the largest",
)
def dynamic_shapes(subject: Subject) -> None:
    rows = [torch.linspace(-1, 1, 4 * n).reshape(n, 4) for n in (1, 3, 8)]
    layer = _values(subject, Layer, *[(x,) for x in rows], dynamic=True)
    _something(layer, _values(subject, Pointwise, *[(x, x + 1) for x in rows], dynamic=True))


@contract(
    "other dtypes, NaN and infinities are computed as PyTorch does, or left to others",
    "a claim that is too wide is a wrong number later",
)
def dtypes(subject: Subject) -> None:
    compared = []
    for name in subject.requirements.dtypes:
        dtype = getattr(torch, name)
        inputs = (X.to(dtype), Y.to(dtype))
        program = torch.export.export(Pointwise(), inputs)
        calls = [inputs]
        if subject.requirements.special and dtype.is_floating_point:
            odd = torch.tensor([[float("nan"), float("inf"), -float("inf"), 0.0]] * 2, dtype=dtype)
            calls += [(odd, inputs[1]), (inputs[0], odd)]
        with on(program):
            half = _HALF if dtype == torch.float16 else 0.0
            compared.append(subject.compare(subject.lowerer(), program, Pointwise(), calls, half))
    _something(*compared)
