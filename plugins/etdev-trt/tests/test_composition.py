"""TensorRT first, then CUDA, then the CPU on one program.

Planning needs no GPU. AOTInductor and the builder of engines are fakes; CudaBackend,
TensorRTBackend and torch-tensorrt's rules are real.
"""

import re
import sys

import pytest
import torch
from etdev_cuda.testing.aoti import FakeAoti
from etdev_trt.plugin import TrtPlugin
from etdev_trt.testing import builder as fake_builder
from etdev_trt.testing import library
from etdev_trt.testing.programs import Engines, X, exported, run_engine
from support.toys.torch_tensorrt import site
from torch import nn

from etdev import Device, Lowerer
from etdev.pte.read import read
from etdev.runtime.check import check

pytest.importorskip("triton", reason="CudaBackend imports triton, which is for Linux")
pytestmark = pytest.mark.usefixtures("torch_tensorrt", "aoti")


@pytest.fixture(scope="module")
def aoti():
    with FakeAoti().installed() as fake:
        yield fake


class Erfinv(Engines):
    """erfinv and a linear layer between two engines, and a sum that stays on the CPU."""

    def __init__(self, *devices):
        super().__init__(*devices)
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        (hidden,) = run_engine([x], self.engine_0, self.devices[0], name="net_0")
        hidden = self.linear(torch.erfinv(hidden))
        (hidden,) = run_engine([hidden], self.engine_1, self.devices[1], name="net_1")
        return torch.cumsum(hidden, 0)


@pytest.fixture(scope="module")
def lowered(torch_tensorrt, aoti):
    pin = {"op": "aten.cumsum.*", "plugin": "portable"}
    return Lowerer(["trt", "cuda", "cpu"], pins=[pin]).lower(exported(Erfinv("0%9", "1%9")))


def test_every_op_has_the_owner_that_can_run_it(lowered):
    plan = lowered.plan["forward"]
    assert [(p.plugin, str(p.device), p.device_source) for p in plan.partitions] == [
        ("trt", "cuda:0", "derived"),
        ("cuda", "cuda:0", "default"),
        ("trt", "cuda:1", "derived"),
    ]
    assert plan.owner("aten_erfinv_default") == "cuda"
    assert "aten.cumsum.default" in {e.op for e in plan.ledger if e.falls_back}


def test_each_value_is_copied_only_where_its_device_changes(lowered):
    copies = [(c.tensor.name, str(c.source), str(c.target)) for c in lowered.plan["forward"].copies]
    assert copies == [
        ("x", "cpu", "cuda:0"),
        ("aten_linear_default", "cuda:0", "cpu"),
        ("aten_linear_default", "cpu", "cuda:1"),
        ("getitem_1", "cuda:1", "cpu"),
    ]


def test_the_pte_says_what_was_planned(lowered, tmp_path):
    path = lowered.save(tmp_path / "three.pte")
    (method,) = read(path).methods
    assert [(d.backend_id, *map(str, d.devices)) for d in method.delegates] == [
        ("TensorRTBackend", "cuda:0"),
        ("CudaBackend", "cuda:0"),
        ("TensorRTBackend", "cuda:1"),
    ]
    targets = [Device("cpu"), Device("cuda", 0), Device("cuda", 1)]
    problems = check(path, targets, plan=lowered.plan, plugins=Lowerer(["trt", "cuda"]).plugins)
    # What the file needs is not here, and nothing else is wrong with it.
    here = re.compile("the runtime has no|-runtime is not installed")
    assert [line for line in problems if not here.search(line)] == []


def test_engines_to_be_built_leave_the_rest_to_cuda():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return torch.cos(torch.erfinv(torch.tanh(self.linear(x))))

    plugins = [TrtPlugin(compile=True, min_block_size=2), "cuda", "cpu"]
    with fake_builder.installed() as builder:
        lowered = Lowerer(plugins).lower(Net(), X)
    plan = lowered.plan["forward"]
    assert [(p.plugin, p.backend_id) for p in plan.partitions] == [
        ("TrtPlugin", "TensorRTBackend"),
        ("cuda", "CudaBackend"),
    ]
    assert len(builder.built) == 1
    assert plan.owner("aten_linear_default") == plan.owner("aten_tanh_default") == "TrtPlugin"
    # An engine of one op is not worth it, so cos goes with erfinv.
    assert plan.owner("aten_cos_default") == plan.owner("aten_erfinv_default") == "cuda"
    # Values between the two delegates stay on the GPU.
    assert len(plan.copies) == 2


@pytest.mark.parametrize("order", [["cuda"], ["cuda", "cpu"], ["cuda", "trt"]], ids=" then ".join)
def test_engines_are_never_cudas(order):
    plan = Lowerer(order).plan(exported(Engines("0%9", "1%9")))["forward"]
    engines = [entry for entry in plan.ledger if "execute_engine" in entry.op]
    assert [entry.owner for entry in engines] == ["trt" if "trt" in order else "portable"] * 2
    for entry in engines:
        verdict = next(verdict for verdict in entry.verdicts if verdict.plugin == "cuda")
        assert (verdict.code, verdict.text) == (
            "op",
            f"AOTInductor has neither a lowering nor a C shim for {entry.op}",
        )
    assert plan.owner("aten_cumsum_default") == "cuda"


def test_modules_that_are_imported_beside_the_fake_library_stay():
    sys.modules.pop("colorsys", None)
    with library.installed(site()):
        import colorsys
    assert sys.modules["colorsys"] is colorsys
