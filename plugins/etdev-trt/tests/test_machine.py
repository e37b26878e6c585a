"""What the plugin finds out about a machine: a reason in one line, without loading torch."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest
from etdev_trt import machine
from etdev_trt.plugin import TrtPlugin

from etdev.errors import install_hint
from etdev.registry.answers import probe
from etdev.registry.selection import from_object

TORCH, EXECUTORCH = version("torch"), version("executorch")
CURE = install_hint("etdev-trt", "tensorrt")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for packages on a machine without TensorRT, as if torch were not loaded."""
    monkeypatch.syspath_prepend(tmp_path)
    # This process has loaded torch and can't unload it.
    monkeypatch.setattr(machine, "sys", SimpleNamespace(modules={}, stderr=sys.stderr))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(machine, "_SYSTEM", ())
    return tmp_path


def put_torch_tensorrt(folder, version="2.14.0", requires=(), executorch=True):
    package = folder / "torch_tensorrt"
    (package / "executorch").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "print('import error')\nraise Exception('libnvinfer.so.11 is missing')\n"
    )
    if executorch:
        (package / "executorch/backend.py").touch()
    info = folder / f"torch_tensorrt-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: torch_tensorrt", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    (info / "METADATA").write_text("\n".join(lines))


def put_tensorrt(folder, library=True):
    (folder / "tensorrt").mkdir()
    (folder / "tensorrt/__init__.py").touch()
    if library:
        (folder / "libnvinfer.so.11").touch()


def test_a_fit_installation(folder):
    put_torch_tensorrt(
        folder, requires=[f"torch=={TORCH}", 'executorch<1.6,>=1.4; extra == "executorch"']
    )
    put_tensorrt(folder)
    assert machine.unfit() is None
    assert probe(from_object(TrtPlugin())).unfit is None


def test_torch_tensorrt_is_not_installed(folder):
    assert machine.unfit() == f"torch-tensorrt is not installed; {CURE}"


def test_a_torch_tensorrt_without_executorch(folder):
    put_torch_tensorrt(folder, "2.9.0", executorch=False)
    put_tensorrt(folder)
    assert machine.unfit() == f"torch-tensorrt 2.9.0 has no ExecuTorch backend; {CURE}"


@pytest.mark.parametrize(
    ("name", "wanted", "extra", "here"),
    [
        ("executorch", "<1.3,>=1.2", '; extra == "executorch"', EXECUTORCH),
        ("torch", "<2.9,>=2.8", "", TORCH),
    ],
)
def test_another_torch_or_executorch_than_its_own(folder, name, wanted, extra, here):
    put_torch_tensorrt(folder, requires=[f"{name}{wanted}{extra}"])
    put_tensorrt(folder)
    assert machine.unfit() == (
        f"torch-tensorrt 2.14.0 needs {name}{wanted}, here is {here}; pip install '{name}{wanted}'"
    )


@pytest.mark.parametrize("bindings", [False, True])
def test_no_libnvinfer(folder, bindings):
    put_torch_tensorrt(folder)
    if bindings:
        put_tensorrt(folder, library=False)
    assert machine.unfit() == f"TensorRT (libnvinfer) is not installed; {CURE}"


def test_the_library_of_tensorrts_own_wheel_is_found(folder):
    put_torch_tensorrt(folder)
    put_tensorrt(folder, library=False)
    (folder / "tensorrt_libs").mkdir()
    (folder / "tensorrt_libs/__init__.py").touch()
    (folder / "tensorrt_libs/libnvinfer.so.11").touch()
    assert machine.unfit() is None


def test_a_budget_that_torch_tensorrt_does_not_know(folder):
    put_torch_tensorrt(folder, "2.13.0")
    put_tensorrt(folder)
    assert machine.unfit() is None
    assert TrtPlugin(weight_streaming_budget=1).probe().unfit == (
        "torch-tensorrt 2.13.0 has no weight_streaming_budget; take 2.14 or leave it out"
    )


def test_a_failing_import_is_reported_where_torch_is_loaded(folder, monkeypatch, capsys):
    put_torch_tensorrt(folder)
    put_tensorrt(folder)
    machine.sys.modules["torch"] = None
    assert machine.unfit() == (
        "torch-tensorrt can't be imported (Exception: libnvinfer.so.11 is missing); " + CURE
    )
    # stdout is for results.
    assert capsys.readouterr().out == ""


def run(code, *folders):
    path = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_the_command_line_shows_the_reason_and_loads_no_torch(tmp_path):
    put_torch_tensorrt(tmp_path, requires=["torch<2.9,>=2.8"])
    done = run(
        "import sys\nfrom etdev.cli.main import main\n"
        "main(['plugins', '--json'], standalone_mode=False)\n"
        "assert not {'torch', 'torch_tensorrt'} & set(sys.modules)",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (trt,) = [row for row in json.loads(done.stdout)["plugins"] if row["name"] == "trt"]
    assert "torch-tensorrt 2.14.0 needs torch<2.9,>=2.8" in json.dumps(trt)


# A program with an engine, exported where torch-tensorrt is installed: here only its op exists.
WITHOUT = """
import torch
from torch import nn
fields = ["9", "net", "2%9%0%0%GPU", None, "x", "y", "0", "", "linux", "0", "static", "0"]
strings = ", ".join("Tensor engine" if f is None else f"str f{i}" for i, f in enumerate(fields))
torch.library.define("tensorrt::no_op_placeholder_for_execute_engine",
                     f"(Tensor[] inputs, {strings}) -> Tensor[]")
@torch.library.register_fake("tensorrt::no_op_placeholder_for_execute_engine")
def shapes(inputs, *fields):
    return [torch.empty_like(inputs[0])]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("engine", torch.zeros(8, dtype=torch.uint8))
    def forward(self, x):
        given = [self.engine if field is None else field for field in fields]
        return torch.ops.tensorrt.no_op_placeholder_for_execute_engine([x + 1], *given)[0]
import etdev
from etdev.errors import PluginError
lowerer = etdev.Lowerer(["trt", "cpu"])
plan = lowerer.plan(Net(), torch.zeros(2, 4))
print([(part.plugin, str(part.device), part.device_source) for part in plan.partitions])
try:
    lowerer.lower(Net(), torch.zeros(2, 4))
except PluginError as error:
    print(error)
try:
    etdev.Lowerer(registry="compile.toml").plan(Net(), torch.zeros(2, 4))
except PluginError as error:
    print(error)
"""


@pytest.mark.suite
def test_without_torch_tensorrt_engines_are_planned_from_the_graph_and_not_lowered(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compile.toml").write_text("[plugins.trt.options]\ncompile = true\n")
    done = run(WITHOUT)
    assert done.returncode == 0, done.stderr
    planned, lowered, compiling = done.stdout.splitlines()
    assert planned == "[('cpu', 'cpu', 'default'), ('trt', 'cuda:2', 'derived')]"
    reason = f"torch-tensorrt is not installed; {CURE}"
    assert lowered.startswith(f"trt: can't compile here: {reason}; ")
    assert compiling == f"trt: compile = true can't plan: {reason}; or leave it false"


class FakeDriver:
    """Stands in for NVIDIA's driver: the calls that count GPUs."""

    def __init__(self, count, started=0):
        self.count, self.started = count, started

    def cuInit(self, flags):  # noqa: N802 - the driver's name
        return self.started

    def cuDeviceGetCount(self, place):  # noqa: N802 - the driver's name
        place._obj.value = self.count
        return 0


@pytest.mark.parametrize(
    ("driver", "devices"),
    [
        (FakeDriver(2), ["cuda:0", "cuda:1"]),
        # As with CUDA_VISIBLE_DEVICES="".
        (FakeDriver(0, started=100), []),
        (FakeDriver(0), []),
    ],
)
def test_the_driver_says_which_gpus_there_are(monkeypatch, driver, devices):
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: driver)
    assert list(map(str, machine.gpus())) == devices


def test_without_a_driver_there_is_no_gpu(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(machine.ctypes, "CDLL", missing)
    assert machine.gpus() == []
