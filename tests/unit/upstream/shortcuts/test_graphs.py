"""Interpreted graphs: no Python code is written for them, and they compute what they did."""

import copy

import torch
from executorch.exir.pass_base import ExportPass
from executorch.exir.program._program import _transform
from torch import nn
from torch.fx import GraphModule
from torch.fx.graph import CodeGen

from etdev.graph import interpreted_copy
from etdev.upstream.shortcuts.graphs import Interpreted

X = torch.randn(2, 4)


def exported():
    return torch.export.export(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), (X,))


def test_passes_make_interpreted_graphs_of_an_interpreted_program(monkeypatch):
    program = exported()
    copied = interpreted_copy(program)
    written, write = [], CodeGen._gen_python_code

    def noted(codegen, nodes, *args, **kwargs):
        written.append(len(nodes))
        return write(codegen, nodes, *args, **kwargs)

    monkeypatch.setattr(CodeGen, "_gen_python_code", noted)
    transformed = _transform(copied, ExportPass(), ExportPass())
    assert isinstance(transformed.graph._codegen, Interpreted)
    # A pass makes an empty module for itself.
    assert not any(written)


def test_the_program_itself_and_deep_copies_are_ordinary():
    program = exported()
    copied = interpreted_copy(program)
    assert "linear" in program.graph_module.code
    assert "Interpreter(self)" in copied.graph_module.code
    assert "linear" in copy.deepcopy(copied).graph_module.code


def test_an_interpreted_graph_computes_the_same():
    program = exported()
    copied = interpreted_copy(program)
    torch.testing.assert_close(copied.module()(X), program.module()(X))
    weights = [program.state_dict[name] for name in program.graph_signature.parameters]
    assert isinstance(copied.graph_module, GraphModule)
    torch.testing.assert_close(copied.graph_module(*weights, X)[0], program.module()(X))


def test_weights_have_the_names_of_their_inputs_where_python_could_not_write_theirs():
    program = exported()
    copied = interpreted_copy(program)
    assert {*program.state_dict} == {"0.weight", "0.bias"}
    assert {*copied.state_dict} == {"p_0_weight", "p_0_bias"}
    assert copied.graph_signature.inputs_to_parameters == {name: name for name in copied.state_dict}
    named = torch.export.export(nn.Linear(4, 4), (X,))
    assert {*interpreted_copy(named).state_dict} == {"weight", "bias"}
