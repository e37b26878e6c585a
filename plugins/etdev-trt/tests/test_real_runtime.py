"""torch-tensorrt-executorch-runtime 0.1.0 itself, as far as it goes without a GPU.

It needs torch 2.14 with CUDA and ExecuTorch 1.4.1, in an environment of its own with etdev and
etdev-trt: `ETDEV_TRT_PYTHON` names its Python. TensorRT is not run: a stub of libnvinfer stands in.
"""

import os
import subprocess

import pytest
import torch
from etdev_trt.testing.programs import Engines, exported
from support.models.small import PAIR, AddMul

from etdev import Lowerer

PYTHON = os.environ.get("ETDEV_TRT_PYTHON")
pytestmark = [
    pytest.mark.suite,
    pytest.mark.skipif(PYTHON is None, reason="ETDEV_TRT_PYTHON names no environment with it"),
]
# The only function that the runtime takes from TensorRT's library.
STUB = 'extern "C" void* createInferRuntime_INTERNAL(void*, int) { return nullptr; }'
RUN = """
import sys, torch
from etdev.runtime.run import run
from etdev.runtime.runners import named
path, inputs, outputs = sys.argv[1:]
found = run(path, torch.load(inputs), runner=named("tensorrt")).outputs
torch.save(list(found), outputs)
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stub")
    (folder / "stub.cpp").write_text(STUB)
    name = "libnvinfer.so.11"
    flags = ["-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name]
    subprocess.run(["g++", *flags, folder / "stub.cpp"], check=True)
    return folder


def ran(path, inputs, stub):
    """Run a file in that runtime, by etdev's own runner there."""
    given, found = path.with_suffix(".in"), path.with_suffix(".out")
    torch.save(tuple(inputs), given)
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", RUN, path, given, found],
        env={**os.environ, "LD_LIBRARY_PATH": str(stub), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    return done.stderr, torch.load(found) if found.exists() else None


def test_it_computes_what_eager_computes_in_delegates_of_xnnpack(stub, tmp_path):
    path = Lowerer(["cpu"]).lower(AddMul(), PAIR).save(tmp_path / "net.pte")
    _, outputs = ran(path, PAIR, stub)
    torch.testing.assert_close(outputs[0], AddMul()(*PAIR))


def test_it_reads_a_file_with_an_engine_as_far_as_memory_on_the_gpu(torch_tensorrt, stub, tmp_path):
    program = exported(Engines("0%9%0%0%NVIDIA H200"))
    path = Lowerer(["trt", "cpu"]).lower(program).save(tmp_path / "engine.pte")
    error, outputs = ran(path, [torch.ones(2, 4)], stub)
    assert outputs is None
    assert "cudaMalloc failed" in error
    assert "TensorRTBackend" in error
