"""Checks of values: delegates compute the values of eager PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from etdev.testing import programs
from etdev.testing.contract import contract
from etdev.testing.fakes import Accelerator
from etdev.testing.programs import Branch, Counter, Layer, Pointwise, Scaled, Shared, exported
from etdev.testing.subject import Skipped, Subject

X, Y = programs.X, programs.Y
# Two steps of rounding that eager PyTorch has between any two ops.
_HALF = 5e-3


def _values(subject: Subject, kind: Any, *calls: Any, dynamic: bool = False) -> bool:
    program = exported(kind, dynamic)
    return subject.compare(subject.lowerer(), program, kind().eval(), calls)


def _something(*compared: bool) -> None:
    """Skip the check if the plugin claimed nodes of none of its programs."""
    if not any(compared):
        raise Skipped("it claims nothing of the programs")


@contract("its delegates compute PyTorch's values", "a fast wrong number is useless")
def values(subject: Subject) -> None:
    pointwise = _values(subject, Pointwise, (X, Y), (Y, X))
    _something(pointwise, _values(subject, Layer, (X,), (Y,)))


@contract(
    "its author's own models compute PyTorch's values",
    "the tiny programs have few ops, and a backend may be made for other ops",
)
def own_models(subject: Subject) -> None:
    if not subject.models:
        raise Skipped("no models are given")
    for model, calls in subject.models:
        with torch.no_grad():
            program = programs.noted(torch.export.export(model.eval(), tuple(calls[0])))
        compared = subject.compare(subject.lowerer(), program, model, calls)
        assert compared, f"it claims nothing of {type(model).__name__}"


@contract(
    "its delegates compute the same values before and after another backend's delegates",
    "no backend tests alone that its delegates work with those of another one",
)
def values_beside_others(subject: Subject) -> None:
    import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

    simulated = subject.simulators.keys()
    # A rival that runs in the same place as the plugin.
    backend = "FakeAccelerator" if simulated else "XnnpackBackend"
    rival = Accelerator("rival", ops=("mul.Tensor",), backend=backend)
    program = exported(Pointwise)
    lowerers = subject.lowerer(rival), subject.lowerer(first=[rival])
    calls = [(X, Y), (Y, X)]
    _something(*[subject.compare(one, program, Pointwise(), calls) for one in lowerers])


@contract(
    "constants outside of its delegates, and shared ones, have the right values",
    "a weight that two delegates or a kernel read is stored once, or twice the same",
)
def shared_constants(subject: Subject) -> None:
    _something(_values(subject, Shared, (X,), (Y,)), _values(subject, Scaled, (X,), (Y,)))


@contract(
    "state that the method writes is right at every step",
    "a delegate with a frozen cache repeats the first token forever",
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
    "other dtypes, NaN and infinities give PyTorch's values, or are not claimed",
    "a claim of unsupported values gives wrong numbers later",
)
def dtypes(subject: Subject) -> None:
    compared = []
    for name in subject.requirements.dtypes:
        dtype = getattr(torch, name)
        inputs = (X.to(dtype), Y.to(dtype))
        program = programs.noted(torch.export.export(Pointwise(), inputs))
        calls = [inputs]
        if subject.requirements.special and dtype.is_floating_point:
            odd = torch.tensor([[float("nan"), float("inf"), -float("inf"), 0.0]] * 2, dtype=dtype)
            calls += [(odd, inputs[1]), (inputs[0], odd)]
        half = _HALF if dtype == torch.float16 else 0.0
        compared.append(subject.compare(subject.lowerer(), program, Pointwise(), calls, half))
    _something(*compared)
