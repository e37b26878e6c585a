"""Bisection: the delegate that departs from eager PyTorch is found and named, and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import frozen
from support.models import nets
from torch import nn
from torch.export import Dim

from etdev import Lowerer
from etdev.errors import RunError
from etdev.lowering.lowering import Lowering
from etdev.runtime.child import ChildResult
from etdev.verify.bisect import bisection
from etdev.verify.oracle import EagerCall
from etdev.verify.tolerance import Tolerance


@frozen(eq=False)
class Case:
    """A model, what was decided for it, and a .pte of it."""

    module: nn.Module
    inputs: Sequence[Any]
    decision: Lowering
    path: Path

    def culprit(self) -> str | None:
        return bisection(self.path, self.decision, "forward", [call(self.inputs)]).culprit(
            Tolerance(1e-4)
        )


def call(inputs: Sequence[Any]) -> EagerCall:
    return EagerCall(None, inputs, (), (), {})


def lowered(model: Callable[[], nets.Model], path: Path) -> Case:
    module, inputs = model()
    lowerer = Lowerer(["cpu"])
    decision = lowerer.decide(module, inputs)
    return Case(module, inputs, decision, lowerer.lower(module, inputs).save(path))


@pytest.fixture(scope="module")
def mlp(tmp_path_factory) -> Case:
    return lowered(nets.mlp, tmp_path_factory.mktemp("mlp") / "net.pte")


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory) -> Case:
    example, sizes = (torch.randn(3, 8),), ({0: Dim("rows", min=2, max=8)},)
    program = torch.export.export(nn.Linear(8, 4), example, dynamic_shapes=sizes)
    lowerer = Lowerer(["cpu"])
    path = lowerer.lower(program).save(tmp_path_factory.mktemp("dynamic") / "net.pte")
    return Case(program.module(), (torch.randn(5, 8),), lowerer.decide(program), path)


@pytest.mark.parametrize("name", ["mlp", "dynamic"])
def test_nothing_in_a_right_program_departs(name, request):
    assert request.getfixturevalue(name).culprit() is None


@pytest.mark.parametrize(("weight", "guilty"), [("0.weight", "cpu_0"), ("3.weight", "cpu_1")])
def test_the_delegate_with_wrong_weights_is_found(weight, guilty, spoil, tmp_path):
    spoil(weight)
    found = lowered(nets.mlp, tmp_path / "net.pte").culprit()
    # Each is given eager's values, so that it isn't blamed for an earlier one.
    assert found.startswith(f"delegate {guilty} (cpu, XnnpackBackend): output 0 is off by ")


def test_parts_that_fail_by_themselves_are_blamed_only_for_a_failure(mlp, monkeypatch):
    fails = ChildResult([], "the runtime failed with set_inputs")
    monkeypatch.setattr("etdev.verify.bisect.run_series", lambda *_, **__: fails)
    found = bisection(mlp.path, mlp.decision, "forward", [call(mlp.inputs)])
    assert found.culprit(Tolerance(1e-4)) is None
    assert len(found.skipped) == 3
    named = found.culprit(Tolerance(1e-4), failed=True)
    assert named == f"delegate cpu_0 (cpu, XnnpackBackend): {fails.failure}"


def test_a_kernel_with_a_symbolic_size_is_called_alone(tmp_path):
    """ExecuTorch emits a symbolic size that is an input as None, which takes no number."""

    class Rows(nn.Module):
        def forward(self, x):
            return x.view(x.shape[0], 4, 2).cumsum(1).view(x.shape[0], 8)

    sizes = ({0: Dim("rows", min=2, max=8)},)
    program = torch.export.export(Rows(), (torch.randn(3, 8),), dynamic_shapes=sizes)
    lowerer = Lowerer([])
    path = lowerer.lower(program).save(tmp_path / "net.pte")
    found = bisection(path, lowerer.decide(program), "forward", [call((torch.randn(5, 8),))])
    assert (found.culprit(Tolerance(1e-4)), found.skipped) == (None, [])


def test_a_program_of_other_plugins_is_not_bisected(mlp):
    other = Lowerer([]).decide(mlp.module, mlp.inputs)
    with pytest.raises(RunError) as caught:
        bisection(mlp.path, other, "forward", [call(mlp.inputs)])
    assert str(caught.value) == (
        f"{mlp.path}: does not match this model and these plugins: method forward, delegate 0: "
        "planned none, found XnnpackBackend on cpu; give the --plugin, --device, --pin it was "
        "lowered with"
    )
