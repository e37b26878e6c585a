"""Differences between an emitted program and its plan that no other test shows."""

import pytest
import torch
from attrs import evolve
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.passes.sym_shape_eval_pass import HintBasedSymShapeEvalPass
from support.toys.accelerator import Accelerator
from torch.export import Dim

from etdev import Lowerer, hookimpl
from etdev.errors import AuditError


class Specialising(BackendDetails):
    """A backend that traces with the example's size, which binds the symbol everywhere."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        (x,) = edge_program.graph.find_nodes(op="placeholder")
        assert x.meta["val"].shape[0] == 3
        return PreprocessResult(processed_bytes=b"for three rows")


class Double(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x + x)


class Fixed(Accelerator):
    """A plugin that says that its compiler specialises."""

    @hookimpl
    def claim_nodes(self, program):
        return evolve(super().claim_nodes(program), specialises=True)


def lowered(backend, plugin=Accelerator):
    plugin = plugin(ops=("add",), backend=backend)
    shapes = {"x": {0: Dim("rows", min=2, max=8)}}
    return Lowerer([plugin], cache=False).lower(
        Double(), (torch.randn(3, 4),), dynamic_shapes=shapes
    )


def test_a_compiler_that_specialises_a_dynamic_size_is_found():
    with pytest.raises(AuditError) as caught:
        lowered("Specialising").to_executorch()
    problem = "{} may have up to 128 bytes, found memory for 48"
    assert problem.format("x") in str(caught.value)
    assert problem.format("aten_add_tensor") in str(caught.value)


def test_a_plugin_may_say_that_its_compiler_specialises():
    fixed = lowered("Specialising", Fixed)
    fixed.to_executorch()
    told = "is compiled for the example's sizes of x only"
    assert told in fixed.plan.summary


def test_a_users_own_bounds_of_sizes_are_no_difference():
    config = ExecutorchBackendConfig(sym_shape_eval_pass=HintBasedSymShapeEvalPass())
    lowered("FakeAccelerator").to_executorch(config)
