"""Bisection: the delegate that departs from eager PyTorch is found and named, and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import frozen
from executorch.exir import EdgeProgramManager
from models import nets
from torch import nn
from torch.export import Dim

from etdev import Lowerer
from etdev.errors import RunError
from etdev.runtime.bisect import Bisection, Suspect, bisection
from etdev.runtime.decision import Decision


@frozen(eq=False)
class Case:
    """A model, what was decided for it, and a .pte of it."""

    module: nn.Module
    inputs: Sequence[Any]
    decision: Decision
    path: Path

    @property
    def delegates(self) -> Bisection:
        return bisection(self.path, self.decision, "forward", self.inputs)

    @property
    def expected(self) -> list[Any]:
        return [self.module(*self.inputs)]


def lowered(model: Callable[[], nets.Model], path: Path) -> Case:
    module, inputs = model()
    lowerer = Lowerer(["cpu"])
    decision = lowerer.decide(module, inputs)
    return Case(module, inputs, decision, lowerer.lower(module, inputs).save(path))


@pytest.fixture(scope="module")
def mlp(tmp_path_factory) -> Case:
    return lowered(nets.mlp, tmp_path_factory.mktemp("mlp") / "net.pte")


@pytest.fixture(scope="module")
def conv_net(tmp_path_factory) -> Case:
    return lowered(nets.conv_net, tmp_path_factory.mktemp("conv") / "net.pte")


@pytest.fixture(scope="module")
def quantised(tmp_path_factory) -> Case:
    return lowered(nets.quantised_conv_net, tmp_path_factory.mktemp("quantised") / "net.pte")


def departing(suspects: Sequence[Suspect]) -> list[str]:
    return [s.partition.name for s in suspects if s.departs(1e-4)]


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory) -> Case:
    example, sizes = (torch.randn(3, 8),), ({0: Dim("rows", min=2, max=8)},)
    program = torch.export.export(nn.Linear(8, 4), example, dynamic_shapes=sizes)
    lowerer = Lowerer(["cpu"])
    path = lowerer.lower(program).save(tmp_path_factory.mktemp("dynamic") / "net.pte")
    return Case(program.module(), (torch.randn(5, 8),), lowerer.decide(program), path)


@pytest.mark.parametrize(
    "name", ["mlp", "conv_net", pytest.param("quantised", marks=pytest.mark.suite), "dynamic"]
)
def test_no_delegate_of_a_right_program_departs(name, request):
    case = request.getfixturevalue(name)
    suspects = list(case.delegates.suspects())
    partitions = case.decision.plan["forward"].partitions
    assert [s.partition.name for s in suspects] == [p.name for p in partitions]
    assert departing(suspects) == []


@pytest.mark.parametrize(("weight", "guilty"), [("0.weight", "cpu_0"), ("3.weight", "cpu_1")])
def test_the_delegate_with_wrong_weights_is_found(weight, guilty, spoil, tmp_path):
    spoil(weight)
    case = lowered(nets.mlp, tmp_path / "net.pte")
    suspects = list(case.delegates.suspects())
    # The later one is fed with eager's values, so that it isn't blamed for the earlier one.
    assert [s.partition.name for s in suspects] == ["cpu_0", "cpu_1"]
    assert departing(suspects) == [guilty]
    (suspect,) = [s for s in suspects if s.partition.name == guilty]
    assert weight.split(".")[0] in suspect.modules
    (swapped,) = case.delegates.swapped(suspect, case.expected)
    assert swapped.max_error < 1e-5


def test_a_quantised_delegate_is_swapped_too(quantised):
    suspect = next(iter(quantised.delegates.suspects()))
    (swapped,) = quantised.delegates.swapped(suspect, quantised.expected)
    assert swapped.max_error < 1e-5


def test_what_no_portable_kernel_runs_is_not_swapped(mlp, monkeypatch):
    suspect = next(iter(mlp.delegates.suspects()))

    def fails(manager):
        raise RuntimeError("Missing out variants")

    monkeypatch.setattr(EdgeProgramManager, "to_executorch", fails)
    assert mlp.delegates.swapped(suspect, mlp.expected) is None


def test_a_program_of_other_plugins_is_not_bisected(mlp):
    other = Lowerer([]).decide(mlp.module, mlp.inputs)
    with pytest.raises(RunError) as caught:
        bisection(mlp.path, other, "forward", mlp.inputs)
    assert str(caught.value) == (
        f"{mlp.path}: is not what this model and these plugins give: method forward, delegate 0: "
        "planned none, found XnnpackBackend on cpu; give the --plugin, --device, --pin it was "
        "lowered with"
    )
