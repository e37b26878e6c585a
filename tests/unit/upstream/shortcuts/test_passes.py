"""Passes that change nothing are left out, two run as one, and the graph is the same."""

import pytest
import torch
from executorch.exir import EdgeCompileConfig
from executorch.exir.pass_base import ExportPass
from executorch.exir.passes import base_pre_op_replace_passes
from executorch.exir.program import _program
from support.models import decoders, nets
from torch import nn
from torch.export import Dim

from etdev import Lowerer
from etdev.upstream.shortcuts import passes
from etdev.upstream.shortcuts.switch import PLAIN


class Mixed(nn.Module):
    """What each of ExecuTorch's passes is for."""

    def forward(self, x, y):
        rows = torch.full((x.shape[0],), x.shape[0])
        return (x + y) * 2 + rows.sum(), x.t(), x.view(-1) + torch.tensor(3)


def graph(module):
    """All that matters of the nodes of a graph and its branches."""
    nodes = [
        (n.name, n.target, str(n.args), str(n.kwargs), str(n.meta["val"]), n.meta["debug_handle"])
        for n in module.graph.nodes
        if n.op == "call_function"
    ]
    branches = (graph(b) for _, b in module.named_children() if isinstance(b, torch.fx.GraphModule))
    return [nodes, *branches]


def converted(program):
    programs = Lowerer(["cpu"]).decide(program).programs
    return {name: graph(program.graph_module) for name, program in programs.items()}


def exported(model, inputs, **options):
    with torch.no_grad():
        return torch.export.export(model, inputs, **options)


PAIR = (torch.randn(4, 4), torch.ones(4, 4, dtype=torch.int32))
ROWS = Dim("rows", min=2, max=8)
PROGRAMS = {
    "mixed": lambda: exported(Mixed(), PAIR),
    "dynamic": lambda: exported(Mixed(), PAIR, dynamic_shapes=({0: ROWS}, {0: ROWS})),
    "cond": lambda: exported(*decoders.cond()),
    "int8": lambda: exported(*nets.quantised_conv_net()),
    "decoder": lambda: exported(*decoders.cached_decoder()),
}


@pytest.mark.slice("mixed", "dynamic", "cond")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_graph_is_that_of_executorchs_own_passes(name, monkeypatch):
    program = PROGRAMS[name]()
    with_fewer = converted(program)
    monkeypatch.setenv(PLAIN, "1")
    assert converted(program) == with_fewer


def test_more_than_half_of_the_traces_are_left_out(monkeypatch):
    traces, call = [], ExportPass.call

    def counted(step, module):
        traces.append(type(step).__name__)
        return call(step, module)

    monkeypatch.setattr(ExportPass, "call", counted)
    program = exported(*nets.mlp())
    Lowerer(["cpu"]).decide(program)
    fewer = set(traces)
    assert "EdgeOpsPass" in fewer
    assert not fewer & {"OpReplacePass", "MemoryFormatOpsPass"}
    monkeypatch.setattr(passes, "only_if_needed", lambda step: step)
    Lowerer(["cpu"]).decide(program)
    assert set(traces) - fewer == {
        *("NormalizeTransposePass", "ReplaceBrokenOpsWithFunctionalOpsPass", "SymToTensorPass"),
        "RemoveMixedTypeOperators",
    }


class HandsOn(ExportPass):
    def call_operator(self, op, args, kwargs, meta):
        return super().call_operator(op, args, dict(kwargs), meta)


class OtherOp(ExportPass):
    def call_operator(self, op, args, kwargs, meta):
        op = torch.ops.aten.sub.Tensor if op == torch.ops.aten.add.Tensor else op
        return super().call_operator(op, args, kwargs, meta)


class OtherArgument(ExportPass):
    def call_operator(self, op, args, kwargs, meta):
        return super().call_operator(op, (args[1], args[0]), kwargs, meta)


class OtherKeyword(ExportPass):
    def call_operator(self, op, args, kwargs, meta):
        return super().call_operator(op, args, {**kwargs, "alpha": 2}, meta)


class Dropped(ExportPass):
    def call_operator(self, op, args, kwargs, meta):
        return args[0]


class Twice(ExportPass):
    def call_operator(self, op, args, kwargs, meta):
        result = super().call_operator(op, args, kwargs, meta)
        return super().call_operator(op, (result, args[1]), kwargs, meta)


class Failing(ExportPass):
    def call_operator(self, op, args, kwargs, meta):
        raise ValueError("no such op")


class Placeholders(HandsOn):
    def placeholder(self, name, arg, meta):
        return super().placeholder(name, arg, meta)


class Whole(HandsOn):
    def call(self, graph_module):
        return super().call(graph_module)


@pytest.mark.parametrize(
    "step",
    [
        OtherOp,
        OtherArgument,
        OtherKeyword,
        Dropped,
        Twice,
        Failing,
        Placeholders,
        Whole,
        type(None),
    ],
)
def test_a_pass_that_may_change_something_is_run(step):
    class Add(nn.Module):
        def forward(self, x, y):
            return x + y

    module = exported(Add(), (torch.ones(2), torch.ones(2))).graph_module
    assert passes.changes_nothing(HandsOn(), module)
    assert not passes.changes_nothing(step(), module)


def test_passes_are_run_on_the_branches_of_control_flow():
    module = exported(*decoders.cond()).graph_module
    assert not passes.changes_nothing(HandsOn(), module)


def test_executorchs_conversion_is_still_built_as_relied_on():
    assert "_get_aten_to_edge_passes" in _program._generate_edge_program.__code__.co_names
    before, _ = _program._get_aten_to_edge_passes(EdgeCompileConfig())
    assert len(before) == len(base_pre_op_replace_passes) + 1
    assert {type(getattr(step, "__wrapped__", step)).__name__ for step in before} >= {
        *("NormalizeTransposePass", "SymToTensorPass", "RemoveMixedTypeOperators")
    }
