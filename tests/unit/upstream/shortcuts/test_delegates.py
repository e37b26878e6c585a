"""Emission learns the shapes of a delegate's results without running its program."""

import copy

import pytest
import torch
from executorch.exir.lowered_backend_module import get_lowered_submodules
from torch import nn
from torch.export import Dim, ExportedProgram

from etdev import Lowerer
from etdev.upstream.shortcuts.switch import PLAIN


class Net(nn.Module):
    """Two delegates, the second with two results."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = torch.cumsum(self.one(x), 0)
        z = self.other(y).relu()
        return z, torch.cumsum(z.t(), 0)


X = (torch.randn(3, 4),)


@pytest.fixture
def modules(monkeypatch):
    """The programs of which a module was made to run them."""
    made, module = [], ExportedProgram.module

    def noted(program, *args, **kwargs):
        made.append(program)
        return module(program, *args, **kwargs)

    monkeypatch.setattr(ExportedProgram, "module", noted)
    return made


def lowered(shapes=None):
    torch.manual_seed(0)
    return Lowerer(["cpu"]).lower(Net().eval(), X, dynamic_shapes=shapes)


def test_no_module_is_made_of_a_delegate(modules):
    result = lowered()
    modules.clear()
    result.to_executorch()
    assert modules == []


@pytest.mark.slice("shapes1")
@pytest.mark.parametrize("shapes", [None, ({0: Dim("rows", min=2, max=8)},)])
def test_the_bytes_are_those_of_running_it(shapes, monkeypatch):
    short = lowered(shapes).to_executorch().buffer
    monkeypatch.setenv(PLAIN, "1")
    assert lowered(shapes).to_executorch().buffer == short


def test_symbolic_shapes_are_those_of_running_it(modules):
    result = lowered(({0: Dim("rows", min=2, max=8)},))
    modules.clear()
    result.to_executorch()
    assert modules


@pytest.mark.parametrize("copied", [lambda m: m, copy.deepcopy])
def test_a_delegate_can_still_be_run_eagerly(copied):
    torch.manual_seed(0)
    model = Net().eval()
    manager = Lowerer(["cpu"]).lower(model, X).edge
    program = copied(manager.exported_program())
    delegate = get_lowered_submodules(program.graph_module)[0][1]
    (value,) = delegate.original_module.module()(*X)
    torch.testing.assert_close(value, model.one(*X))
