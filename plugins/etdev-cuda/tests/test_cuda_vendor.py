"""Changes of CudaBackend while it compiles: weights inside, kernels for one GPU, clear errors."""

from __future__ import annotations

import re

import pytest
import torch
from etdev_cuda import machine
from etdev_cuda.plugin import CudaPlugin
from support.models import nets

from etdev import EtdevWarning, Lowerer
from etdev.errors import CompileError
from etdev.pte.read import read

cuda_backend = pytest.importorskip("executorch.backends.cuda.cuda_backend")
MULTI_ARCH = "aot_inductor.emit_multi_arch_kernel"


@pytest.fixture
def before():
    """What CudaBackend has of its own, which must be there again after each lowering."""
    known = dict(vars(cuda_backend.CudaBackend))
    yield known
    assert dict(vars(cuda_backend.CudaBackend)) == known


def lowered(**options):
    return Lowerer([CudaPlugin(**options)], cache="off").lower(*nets.mlp())


def test_weights_are_stored_where_the_option_says(aoti, before, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    outside = lowered(external_weights=True).save(tmp_path / "out/net.pte")
    inside = lowered(external_weights=False).save(tmp_path / "in/net.pte")
    assert [path.suffix for path in sorted(outside.parent.iterdir())] == [".ptd", ".pte"]
    assert [path.suffix for path in inside.parent.iterdir()] == [".pte"]
    assert inside.stat().st_size > outside.stat().st_size
    plugins = Lowerer([CudaPlugin()]).plugins
    for path, found in ((outside, False), (inside, True)):
        (method,) = read(path, plugins).methods
        keys = method.delegates[0].data
        assert len(keys) > 1
        assert set(keys) <= set(read(path).named) or not found
        assert bool(set(keys[1:]) & set(read(path).named)) is found


def test_kernels_are_for_several_gpus_where_nvcc_or_fatbinary_is(aoti, before, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(machine, "makes_fatbins", lambda: True)
    lowered()
    monkeypatch.setattr(machine, "makes_fatbins", lambda: False)
    with pytest.warns(EtdevWarning, match="neither nvcc nor fatbinary is installed"):
        lowered()
    assert [call.options[MULTI_ARCH] for call in aoti.calls] == [True, False]


def test_nvcc_or_fatbinary_is_looked_for_where_inductor_does(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDACXX", raising=False)
    assert not machine.makes_fatbins()
    tool = tmp_path / "fatbinary"
    tool.touch(mode=0o755)
    assert machine.makes_fatbins()
    tool.rename(tmp_path / "my-nvcc")
    assert not machine.makes_fatbins()
    monkeypatch.setenv("CUDACXX", str(tmp_path / "my-nvcc"))
    assert machine.makes_fatbins()


def test_a_kernel_that_the_rules_missed_is_named_with_a_way_out(aoti, before, monkeypatch):
    def compile_missing(module, args, options):
        # As Inductor asks for a kernel while it writes code.
        from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

        with pytest.raises(Exception):  # noqa: B017, PT011 - there is no code to write it into
            CppWrapperCpu.generate_c_shim_extern_kernel_call(None, "at::_ops::topk::call", [], "")
        return aoti.compile(module, args, options)

    monkeypatch.setattr(torch._inductor, "aot_compile", compile_missing)
    with pytest.raises(CompileError) as caught:
        lowered()
    assert re.search(
        r"AOTInductor calls at::_ops::topk::call, which CudaBackend's runtime does not have\. "
        r'.*with on_failure = "fallback" the nodes of this delegate go to other plugins',
        str(caught.value),
    )


def test_a_miss_leaves_the_nodes_to_others_with_on_failure(aoti, before, monkeypatch):
    def refuse(module, args, options):
        raise RuntimeError("Method forward missing fallback kernels (1 total):")

    monkeypatch.setattr(torch._inductor, "aot_compile", refuse)
    kept = Lowerer([CudaPlugin(), "cpu"], on_failure="fallback", cache="off").lower(*nets.mlp())
    assert "CudaPlugin" not in kept.plan["forward"].ledger.owned()
