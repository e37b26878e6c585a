"""A claim whose partitions one backend compiles and another one runs."""

import copy

import pytest
import torch
from attrs import define
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.lowered_backend_module import get_lowered_submodules
from support.toys.runtime import assert_agrees, by_partitioner
from torch import nn

from etdev import Claim, Group, Lowerer, Plan, hookimpl
from etdev.errors import CompileError, PluginError
from etdev.pte.read import read

pytestmark = pytest.mark.usefixtures("quick_conversion")

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
    (delegate,) = read(lowered.save(tmp_path / "net.pte")).methods[0].delegates
    assert delegate.backend_id == "XnnpackBackend"
    assert_agrees(lowered, Net(), (X,))


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


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_a_compiler_that_is_not_loaded_was_to_have_goes_to_the_next_plugin(jobs):
    plugins = [Adder(compiler="NoSuchCompiler"), "cpu"]
    lowered = Lowerer(plugins, on_failure="fallback", jobs=jobs, cache=False).lower(Net(), X)
    assert {partition.plugin for partition in lowered.plan.partitions} == {"cpu"}
    assert_agrees(lowered, Net(), (X,))


def test_executorchs_own_loop_has_no_other_compiler():
    with pytest.raises(PluginError) as caught:
        by_partitioner(Net(), (X,), [Adder()])
    assert str(caught.value) == (
        "adder: has OtherCompiler compile forward/adder_0 for XnnpackBackend, which a "
        "partitioner can't ask of ExecuTorch; lower with etdev.Lowerer"
    )


def test_a_compiler_names_the_cure_for_executorchs_own_loop(monkeypatch):
    monkeypatch.setattr(OtherCompiler, "instead", "claim less", raising=False)
    with pytest.raises(PluginError) as caught:
        by_partitioner(Net(), (X,), [Adder()])
    assert caught.value.cure == "lower with etdev.Lowerer, or claim less"


def payloads(lowered):
    modules = get_lowered_submodules(lowered.edge.exported_program().graph_module)
    return [module.processed_bytes for _, module, _ in modules]


def twin(package, payload=b""):
    """A backend and a plugin in a package, whose backend has the name of another package's."""

    def preprocess(edge_program, compile_specs):
        return PreprocessResult(processed_bytes=payload)

    body = {"preprocess": staticmethod(preprocess), "__module__": f"{package}.backend"}
    title = "AgainBackend" if package == "again" else "TwinBackend"
    backend = type(title, (BackendDetails,), body)

    class Plugin:
        __module__ = f"{package}.plugin"
        name = package
        op = {"one": "add", "other": "cumsum"}.get(package, "add")

        @hookimpl
        def claim_nodes(self, program):
            groups = [Group([n]) for n in program.graph.nodes if self.op in n.name]
            return Claim(title, groups)

    return Plugin, backend


def test_of_backends_with_one_name_the_plugins_own_compiles_or_none():
    (one, _one), (other, _other) = twin("one", b"one"), twin("other", b"other")
    third = type("Third", (one,), {"__module__": "third", "name": "third"})
    defined = (
        "the backend 'TwinBackend' of forward/{}_0 is defined in one.backend and in other.backend; "
        "rename one of the classes, as a .pte and ExecuTorch know backends by their names"
    )
    for plugin in (one, other):
        lowered = Lowerer([plugin()]).lower(Net(), X)
        assert payloads(lowered) == [plugin.name.encode()]
    for plugins, name in (([one(), other()], "other"), ([third()], "third")):
        with pytest.raises(CompileError) as caught:
            Lowerer(plugins).lower(Net(), X)
        assert str(caught.value) == f"{name}: {defined.format(name)}"
    with pytest.raises(CompileError) as caught:
        by_partitioner(Net(), (X,), [one()])
    assert str(caught.value) == f"one: {defined.format('one')}"


def test_of_a_backend_that_is_defined_again_the_last_compiles():
    (_, _first), (plugin, _last) = twin("again", b"first"), twin("again", b"last")
    assert payloads(Lowerer([plugin()]).lower(Net(), X)) == [b"last"]
