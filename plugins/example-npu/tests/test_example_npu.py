"""The example of a whole backend, built and run as a vendor's own would be."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from etdev_cpp import build
from etdev_cpp.libraries import installed
from etdev_cpp.wheel import Wheel

from etdev.registry.registry import tomllib

EXAMPLE = Path(__file__).parents[1]
NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8, bias=i > 0) for i in range(3))

    def forward(self, x):
        x = self.layers[1](self.layers[0](x).relu())
        return self.layers[2](torch.erf(x)), x


def model():
    return Net().eval(), (torch.randn(3, 8),)
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with the example as pip would install it, its library built, and a model."""
    if not build.find() or not installed():
        pytest.skip("there is no C++ compiler here, or no library of ExecuTorch for C++")
    wheel, compiler = Wheel.here(), build.Compiler.here()
    folder = tmp_path_factory.mktemp("npu")
    shutil.copytree(EXAMPLE / "example_npu", folder / "example_npu")
    info = folder / "example_npu-0.1.0.dist-info"
    info.mkdir()
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example-npu\nVersion: 0.1.0\n")
    groups = {name: project["entry-points"][name] for name in ("etdev", "etdev.runners")}
    lines = [f"[{g}]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for g, e in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (runtime,) = (wheel.folder / "lib").glob("libexecutorch.*")
    words = [*compiler.words, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    words += [*wheel.compile_flags(), str(EXAMPLE / "runtime" / "backend.cpp"), "-o"]
    words += [str(folder / "example_npu" / "libexample_npu.so"), str(runtime)]
    subprocess.run(words, check=True, timeout=300)
    (folder / "net.py").write_text(NET)
    (folder / "registry.toml").write_text('[plugins.example-npu]\ndevice = { forward = "npu:1" }\n')
    return folder


def etdev(desk, *words):
    environment = {**os.environ, "PYTHONPATH": str(desk), "ETDEV_CACHE": str(desk / "cache")}
    command = [Path(sys.executable).with_name("etdev"), *words]
    return subprocess.run(
        command, cwd=desk, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.suite
def test_delegates_of_the_second_core_are_verified_in_the_backends_own_runtime(desk):
    done = etdev(desk, "lower", "net.py:model", "-o", "net.pte", "--verify", "--json")
    assert done.returncode == 0, done.stderr
    lowering = json.loads(done.stdout)
    assert lowering["verification"]["runners"] == ["example-npu"]
    assert lowering["methods"][0]["owned"] == {"example-npu": 4, "portable": 1}
    shown = json.loads(etdev(desk, "inspect", "net.pte", "--json").stdout)
    delegates = shown["methods"][0]["delegates"]
    assert [d["backend_id"] for d in delegates] == ["ExampleNpuBackend"] * 2
    specs = [spec for delegate in delegates for spec in delegate["compile_specs"]]
    assert [spec["key"] for spec in specs] == ["etdev_device"] * 2
    assert {base64.b85decode(spec["value"]) for spec in specs} == {b"npu:1"}
    checked = etdev(desk, "check", "net.pte")
    assert checked.returncode == 0, checked.stderr + checked.stdout
    assert (desk / "net.pte").read_bytes().count(b"NPU1\1") == 2


@pytest.mark.suite
def test_a_damaged_payload_is_refused_when_it_is_loaded(desk):
    done = etdev(desk, "lower", "net.py:model", "-o", "whole.pte")
    assert done.returncode == 0, done.stderr
    whole = (desk / "whole.pte").read_bytes()
    # The first core, which isn't the one of the compile spec.
    (desk / "bad.pte").write_bytes(whole.replace(b"NPU1\1", b"NPU1\0"))
    done = etdev(desk, "run", "bad.pte")
    assert done.returncode == 1
    assert "bad.pte" in done.stderr


@pytest.mark.suite
def test_the_example_keeps_the_contract(desk):
    script = (
        "from etdev.testing import CHECKS, Requirements, run\n"
        "from example_npu.plugin import ExampleNpu\n"
        "names = 'api claims repeatable settings reasons same_bytes devices'.split()\n"
        "board = run(ExampleNpu, checks=[c for c in CHECKS if c.name in names])\n"
        "print(board.badge); print(board.to_json())"
    )
    environment = {**os.environ, "PYTHONPATH": str(desk)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=desk, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    badge, _, report = done.stdout.partition("\n")
    assert "broken" not in badge, report
    kept = [check for check in json.loads(report)["results"] if check["outcome"] == "kept"]
    assert len(kept) >= 5, report
