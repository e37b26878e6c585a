"""A claim whose partitions one backend compiles and another one runs."""

import copy

import pytest
import torch
from attrs import define
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.backend_details import BackendDetails
from executorch.runtime import Runtime
from torch import nn

import etdev
from etdev import Claim, Group, Lowerer, Plan, hookimpl
from etdev.errors import ClaimError, CompileError, PluginError
from etdev.pte.read import read

X = torch.randn(2, 4)


class OtherCompiler(BackendDetails):
    """Compiles for XNNPACK."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return XnnpackBackend.preprocess(edge_program, compile_specs)


class StaticCompiler(BackendDetails):
    """Compiles all partitions at once, in a static method, as ExecuTorch's own test backends."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        raise NotImplementedError

    @staticmethod
    def preprocess_multimethod(edge_programs, compile_specs):
        return {
            method: list(map(XnnpackBackend.preprocess, programs, compile_specs[method]))
            for method, programs in edge_programs.items()
        }

    @staticmethod
    def copy_exported_program_for_preprocess(edge_program, compile_specs):
        return copy.deepcopy(edge_program)


class ForgetfulCompiler(BackendDetails):
    """Compiles nothing."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        raise NotImplementedError

    @staticmethod
    def preprocess_multimethod(edge_programs, compile_specs):
        return {method: [] for method in edge_programs}


@define(eq=False)
class Adder:
    name: str = "adder"
    compiler: str | None = "OtherCompiler"

    @hookimpl
    def claim_nodes(self, program):
        adds = [n for n in program.graph.nodes if "aten.add.Tensor" in str(n.target)]
        groups = [Group([node]) for node in adds]
        return Claim("XnnpackBackend", groups, compiler=self.compiler)


class Net(nn.Module):
    def forward(self, x):
        return torch.cumsum(x + x, 0)


@pytest.mark.parametrize("compiler", ["OtherCompiler", "StaticCompiler"])
def test_a_partition_is_compiled_by_one_backend_and_run_by_another(compiler, tmp_path):
    lowered = Lowerer([Adder(compiler=compiler)]).lower(Net(), X)
    path = lowered.save(tmp_path / "net.pte")
    (delegate,) = read(path).methods[0].delegates
    assert delegate.backend_id == "XnnpackBackend"
    program = Runtime.get().load_program(path)
    (output,) = program.load_method("forward").execute([X])
    torch.testing.assert_close(output, Net()(X))


def test_the_plan_says_who_compiles():
    plan = Lowerer([Adder()]).plan(Net(), X)
    (partition,) = Plan.from_json(plan.to_json()).partitions
    assert (partition.backend_id, partition.compiler) == ("XnnpackBackend", "OtherCompiler")
    (partition,) = Lowerer([Adder(compiler=None)]).plan(Net(), X).partitions
    assert partition.compiler is None


def test_a_compiler_that_is_not_loaded_is_named():
    with pytest.raises(CompileError) as caught:
        Lowerer([Adder(compiler="NoSuchCompiler")]).lower(Net(), X)
    assert caught.value.what == "backend 'NoSuchCompiler' of forward/adder_0 is not loaded"


def test_a_compiler_that_leaves_a_partition_out_is_named():
    with pytest.raises(CompileError) as caught:
        Lowerer([Adder(compiler="ForgetfulCompiler")]).lower(Net(), X)
    assert caught.value.what == (
        "ForgetfulCompiler compiled forward/adder_0 and returned 0 results for the 1 partitions of "
        "method 'forward' from preprocess_multimethod"
    )


def test_a_compiler_without_a_name_is_refused():
    with pytest.raises(ClaimError, match=r"Claim\.compiler is empty"):
        Claim("XnnpackBackend", [], compiler="")


def test_executorchs_own_loop_has_no_other_compiler():
    program = torch.export.export(Net(), (X,))
    with pytest.raises(PluginError) as caught:
        to_edge_transform_and_lower(program, partitioner=[etdev.partitioner([Adder()])])
    assert str(caught.value) == (
        "adder: has OtherCompiler compile forward/adder_0 for XnnpackBackend, which a "
        "partitioner can't ask of ExecuTorch; lower with etdev.Lowerer"
    )
