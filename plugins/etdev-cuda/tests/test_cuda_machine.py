"""A machine without a GPU: planning works, and lowering says what is missing."""

import struct
import subprocess
import sys

import pytest
import torch
from etdev_cuda import machine, payload
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from etdev import Lowerer, Probe
from etdev.errors import PluginError, install_hint

WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import torch
from etdev import Lowerer
plan = Lowerer(["cuda"]).plan(torch.nn.Linear(4, 4).eval(), (torch.randn(2, 4),))
print([partition.backend_id for partition in plan.partitions])
"""


@pytest.mark.suite
def test_without_triton_it_plans():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_TRITON], capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("['CudaBackend']\n", 0), done.stderr


@pytest.fixture
def complete(monkeypatch, tmp_path):
    """A machine that has everything; each test removes something."""
    compiler = tmp_path / "g++"
    compiler.touch(mode=0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(machine, "gpus", lambda: 1)
    monkeypatch.setattr(machine, "torch_cuda", lambda: "13.0")
    monkeypatch.setattr(machine, "_installed", lambda name: True)
    return monkeypatch


def test_a_complete_machine_is_fit(complete):
    assert machine.probe() == Probe(["cuda:0"])


def test_what_is_missing_is_named_in_one_line(complete):
    complete.setenv("CXX", "no-such-compiler")
    expected = (
        "AOTInductor needs a C++ compiler, and no-such-compiler is not installed; install one"
    )
    assert machine.probe().unfit == expected
    complete.setattr(machine, "gpus", lambda: 0)
    expected = "the NVIDIA driver (libcuda.so.1) shows no GPU; run on a machine with one"
    assert machine.probe().unfit == expected
    complete.setattr(machine, "torch_cuda", lambda: None)
    expected = "this torch is built without CUDA; install a CUDA build of torch"
    assert machine.probe().unfit == expected
    complete.setattr(machine, "_installed", lambda name: name == "executorch")
    hint = install_hint("etdev-cuda", "compile")
    assert machine.probe().unfit == f"triton is not installed; {hint}"
    complete.setattr(machine, "_installed", lambda name: False)
    assert machine.probe().unfit == "ExecuTorch is not installed; pip install executorch"


def test_the_probe_agrees_with_torch():
    assert machine.torch_cuda() == torch.version.cuda
    assert (machine.gpus() > 0) >= torch.cuda.is_available()


@pytest.mark.parametrize(("version", "runner"), [("0.1.0", "tensorrt"), ("0.2.0", None)])
def test_a_runtime_that_replaces_executorchs_runs_delegates(monkeypatch, version, runner):
    """Version 0.2 only adds TensorRT to it, see pytorch/TensorRT#4567."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("importlib.metadata.version", lambda name: version)
    assert machine.runner() == runner


def test_lowering_stops_with_the_reason_and_planning_works(complete):
    complete.setattr(machine, "gpus", lambda: 0)
    module, inputs = nn.Linear(4, 4).eval(), (torch.randn(2, 4),)
    assert len(Lowerer(["cuda"]).plan(module, inputs).partitions) == 1
    with pytest.raises(PluginError) as caught:
        Lowerer(["cuda"]).lower(module, inputs)
    assert str(caught.value) == (
        "cuda: can't compile here: the NVIDIA driver (libcuda.so.1) shows no GPU; run on a machine "
        "with one; planning works here; to lower without it name the others, "
        'plugins=["cpu"] or --plugin cpu'
    )


def test_the_payload_of_executorch_1_4_names_its_data():
    assert payload.keys(b"abc_so_blob\ndef_weights_blob") == ("abc_so_blob", "def_weights_blob")


def test_the_payload_of_executorch_1_5_names_its_data():
    collector = pytest.importorskip("executorch.backends.cuda.cuda_weight_collector")
    entries = [
        collector.CudaWeightEntry(name, f"key:{name}", 8, 6, 1, 0, (2, 3), (3, 1))
        for name in ("first", "second")
    ]
    encoded = collector.encode_cuda_weight_metadata("abc_so_blob", entries)
    assert payload.keys(encoded) == ("abc_so_blob", "key:first", "key:second")
    for end in range(len(encoded)):
        assert payload.keys(encoded[:end]) == ()


@pytest.mark.parametrize(
    ("magic", "first", "second"),
    [(b"ETCUDAFQN4", (80, 0), (90, 90)), (b"ETCUDAFQN5", (80, 0, 0), (90, 90, 1))],
)
def test_the_payload_of_the_next_release_names_a_library_for_each_kind_of_gpu(magic, first, second):
    """Written by hand as encode_cuda_multi_arch_metadata of ExecuTorch's main branch does."""

    def text(value):
        return struct.pack("<I", len(value)) + value

    def variant(numbers, key):
        return struct.pack(f"<{len(numbers)}I", *numbers) + text(key)

    weight = text(b"w") + text(b"key:w") + struct.pack("<QiiqI2q2q", 8, 6, 1, 0, 2, 2, 3, 3, 1)
    variants = variant(first, b"a_so_blob") + variant(second, b"b_so_blob")
    encoded = magic + struct.pack("<I", 2) + variants + struct.pack("<I", 1) + weight
    assert payload.keys(encoded) == ("a_so_blob", "b_so_blob", "key:w")
    for end in range(len(encoded)):
        assert payload.keys(encoded[:end]) == ()


@given(st.binary())
def test_any_bytes_can_be_looked_at(data):
    for magic in (b"ETCUDAFQN3", b"ETCUDAFQN4", b"ETCUDAFQN5"):
        assert all(isinstance(key, str) for key in payload.keys(magic + data))
    assert all(isinstance(key, str) for key in payload.keys(data))
