"""Errors of passes and compilers: they name the node that the code was at, and its line."""

import pytest
import torch
from executorch.exir.backend.backend_details import BackendDetails
from executorch.exir.pass_base import ExportPass
from torch import nn
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from etdev import Claim, Group, Lowerer, hookimpl
from etdev.edge.conversion import Settings
from etdev.errors import CompileError, LoweringError, PluginError
from etdev.graph.nodes import op_name

X = (torch.ones(2, 4),)


class Product(nn.Module):
    def forward(self, x):
        return x.sin() * (x + 1)


LINE = f" at test_tracebacks.py:{Product.forward.__code__.co_firstlineno + 1}"
PLACE = f"aten.mul.Tensor{LINE}"


def is_product(node):
    return node.op == "call_function" and op_name(node) == "aten.mul.Tensor"


class Tracing(ExportPass):
    def call_operator(self, op, args, kwargs, meta):
        if "mul" in str(op):
            raise KeyError("tables")
        return super().call_operator(op, args, kwargs, meta)


class Looping(PassBase):
    def call(self, graph_module):
        for node in graph_module.graph.nodes:
            if is_product(node):
                self.look_up(str(node.target))

    def look_up(self, name):
        return {}[name]


class Finished(PassBase):
    def call(self, graph_module):
        nodes = [node for node in graph_module.graph.nodes if node.op == "call_function"]
        for node in nodes:
            assert node
        raise KeyError("tables")


class Inserting(PassBase):
    """It adds a node that no line of the user's calls, and fails on it."""

    def call(self, graph_module):
        for node in graph_module.graph.nodes:
            if is_product(node):
                self.check(graph_module.graph.call_function(torch.ops.aten.neg.default, (node,)))
        return PassResult(graph_module, True)

    def check(self, made):
        raise KeyError(made.name)


def failure(wrong):
    with pytest.raises(LoweringError) as caught:
        Lowerer([]).lower(Product(), X, settings=Settings(transform_passes=[wrong()]))
    return caught.value.what


@pytest.mark.parametrize("wrong", [Tracing, Looping])
def test_an_error_of_a_pass_names_the_node_it_was_at(wrong):
    assert failure(wrong).endswith(f" in {PLACE}")


def test_a_loop_that_is_over_is_at_no_node():
    assert failure(Finished).endswith("KeyError: 'tables')")


def test_a_node_that_a_pass_made_has_the_line_of_the_value_before_it():
    assert failure(Inserting).endswith(f" in aten.neg.default{LINE}")


class RaisingBackend(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        for node in edge_program.graph.nodes:
            if is_product(node):
                raise KeyError("tables")


class Raising:
    """Claims a product; asked about a sum, it raises."""

    name, backend_id = "raising", "RaisingBackend"

    def __init__(self, asks=""):
        self.asks = asks

    @hookimpl
    def claim_nodes(self, program):
        nodes = [node for node in program.graph.nodes if node.op == "call_function"]
        for node in nodes:
            if self.asks and self.asks in op_name(node):
                raise KeyError("tables")
        return Claim(self.backend_id, [Group([node.name]) for node in nodes if is_product(node)])


def test_an_error_of_a_compiler_names_the_node_it_was_at():
    with pytest.raises(CompileError) as caught:
        Lowerer([Raising()]).lower(Product(), X)
    assert caught.value.what.endswith(f": KeyError: 'tables' in {PLACE}")


def test_an_error_of_a_hook_names_the_node_it_was_at():
    with pytest.raises(PluginError) as caught:
        Lowerer([Raising("mul")]).plan(Product(), X)
    where = f"in {PLACE} for method 'forward'"
    assert caught.value.what == f"claim_nodes raised KeyError: 'tables' {where}"


class Narrow(nn.Module):
    def forward(self, x):
        return x.to(torch.float8_e4m3fn).to(torch.float32)


def test_an_error_of_the_verifier_has_the_line_of_its_first_node():
    line = Narrow.forward.__code__.co_firstlineno + 1
    with pytest.raises(LoweringError) as caught:
        Lowerer([]).lower(Narrow(), X)
    assert (
        "Operator: <EdgeOpOverload: dim_order_ops._to_dim_order_copy.default>" in caught.value.what
    )
    assert caught.value.what.endswith(f" at test_tracebacks.py:{line}")
