"""The runner of torch-tensorrt's runtime, with a fake of its package."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from attrs import evolve
from etdev_trt.plugin import TrtPlugin
from etdev_trt.runner import PACKAGE, RUNNER, load_program
from support.models.small import PAIR, AddMul

from etdev import Lowerer
from etdev.errors import RunError, install_hint
from etdev.pte.artifact import Delegate, MethodArtifact
from etdev.pte.read import read
from etdev.registry import answers
from etdev.registry.selection import from_object
from etdev.runtime.run import run
from etdev.runtime.runners import named

# Stands in for the package, over this ExecuTorch: the calls that torch-tensorrt makes of it.
FAKE = """
class Native:
    @staticmethod
    def _load_for_executorch_from_buffer(data):
        from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
        return _load_for_executorch_from_buffer(data)

def activate():
    return Native
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """The fake package, installed here and in the runner's process, which several tests share."""
    folder = tmp_path_factory.mktemp("runtime")
    (folder / f"{PACKAGE}.py").write_text(FAKE)
    about = folder / f"{PACKAGE}-0.1.0.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 0.1.0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
        RUNNER.child.close()
        sys.modules.pop(PACKAGE, None)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("runner") / "net.pte"
    return Lowerer([]).lower(AddMul(), PAIR).save(path)


def test_the_plugin_names_its_runner_for_its_delegates_only():
    plugins = [from_object(TrtPlugin())]
    assert answers.runner_for(plugins, "TensorRTBackend") == RUNNER.name == "tensorrt"
    assert answers.runner_for(plugins, "XnnpackBackend") is None


def test_a_runtime_that_is_not_installed_is_named(monkeypatch):
    without = [path for path in sys.path if not Path(path, f"{PACKAGE}.py").exists()]
    monkeypatch.setattr(sys, "path", without)
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    with pytest.raises(RunError) as caught:
        named("tensorrt")
    assert str(caught.value) == (
        "trt: torch-tensorrt-executorch-runtime is not installed; "
        + install_hint("etdev-trt", "runtime")
    )


def test_a_program_runs_by_the_runtimes_module_api(runtime, program):
    assert named("tensorrt") is RUNNER
    done = run(program, PAIR, repeat=2, runner=named("tensorrt"))
    torch.testing.assert_close(done.outputs[0], AddMul()(*PAIR))
    # The second time in the process that is kept.
    again = [value + 1 for value in PAIR]
    torch.testing.assert_close(
        run(program, again, runner=named("tensorrt")).outputs[0], AddMul()(*again)
    )


def test_a_ptd_is_refused_in_the_words_of_the_runtime(runtime, program, tmp_path):
    with pytest.raises(RunError, match=f"{PACKAGE} has no data_path"):
        run(program, PAIR, data=tmp_path / "net.ptd", runner=named("tensorrt"))


def test_the_next_version_adds_its_backend_to_executorchs_runtime(program, monkeypatch):
    """A stand-in for version 0.2, made after pytorch/TensorRT#4567: it has no `activate`."""
    monkeypatch.setitem(sys.modules, PACKAGE, ModuleType(PACKAGE))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.2.0")
    (output,) = load_program(program).load_method("forward").execute(PAIR)
    torch.testing.assert_close(output, AddMul()(*PAIR))
    delegates = [Delegate(name, [], 1, 1, []) for name in ("TensorRTBackend", "NoBackend")]
    (method,) = read(program).methods
    assert RUNNER.missing(evolve(method, delegates=delegates)) == (["NoBackend"], [])


def test_backends_and_kernels_that_it_lacks_are_known(runtime, program):
    (method,) = read(program).methods
    assert RUNNER.missing(method) == ([], [])
    names = ("TensorRTBackend", "OpenvinoBackend", "CudaBackend", "XnnpackBackend")
    delegates = [Delegate(name, [], 1, 1, []) for name in names]
    more = MethodArtifact(
        *("forward", (), (), tuple(delegates), {}, ("quantized_decomposed::add.out",), {}),
        *(0, 0, (), (), ()),
    )
    assert RUNNER.missing(more) == (["OpenvinoBackend"], ["quantized_decomposed::add.out"])
