"""TensorRT first, then CUDA, then the CPU on one program, with stand-ins for the two compilers.

The plans are made with torch-tensorrt's and ExecuTorch's real partitioners, which need no GPU.
"""

import fake_builder
import pytest
import torch
from attrs import define
from engine_programs import Engines, X, exported, run_engine
from etdev_trt.plugin import TrtPlugin
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.program._fake_program import get_fake_program
from torch import nn

from etdev import Claim, Device, Group, KeepWhole, Lowerer, hookimpl
from etdev.check import check
from etdev.graph import op_name
from etdev.reader import read

pytest.importorskip("triton", reason="CudaPartitioner imports triton, which is for Linux")
pytestmark = pytest.mark.usefixtures("torch_tensorrt")


class FakeCudaCompiler(BackendDetails):
    """Stands in for CudaBackend, whose compiler needs a GPU."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return PreprocessResult(processed_bytes=b"fake")


@define(eq=False)
class Cuda:
    """ExecuTorch's CudaPartitioner as a plugin, with a fake compiler.

    Args:
        leaves: Names of the ops that it doesn't take.
    """

    name = "cuda"
    leaves: tuple[str, ...] = ()

    @hookimpl
    def keep_whole(self, program):
        ops, when = self._partitioner().ops_to_not_decompose(program)
        return KeepWhole(sorted(ops, key=str), when)

    @hookimpl
    def claim_nodes(self, program, taken):
        tagged = self._partitioner().partition(get_fake_program(program)).tagged_exported_program
        groups = [
            Group([node.name])
            for node in tagged.graph.nodes
            if node.op == "call_function" and "delegation_tag" in node.meta
            if node.name not in taken and op_name(node) not in self.leaves
        ]
        return Claim("CudaBackend", groups, device_types=("cuda",), compiler="FakeCudaCompiler")

    @hookimpl
    def claim_constants(self, partition):
        return [constant for constant in partition.constants if not constant.mutated]

    @hookimpl
    def resolve_device(self):
        return Device("cuda", 0)

    def _partitioner(self):
        from executorch.backends.cuda.cuda_partitioner import CudaPartitioner

        return CudaPartitioner([])


class Erfinv(Engines):
    """erfinv beside an engine, a weight of their own, and a sum that stays on the CPU."""

    def __init__(self, *devices):
        super().__init__(*devices)
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        (hidden,) = run_engine([x], self.engine_0, self.devices[0], name="net_0")
        hidden = self.linear(torch.erfinv(hidden))
        (hidden,) = run_engine([hidden], self.engine_1, self.devices[1], name="net_1")
        return torch.cumsum(hidden, 0)


@pytest.fixture(scope="module")
def lowered():
    lowerer = Lowerer(["trt", Cuda(leaves=("aten.cumsum.default",)), "cpu"])
    return lowerer.lower(exported(Erfinv("0%9", "1%9")))


def test_every_op_has_the_owner_that_can_run_it(lowered):
    plan = lowered.plan["forward"]
    assert [(p.plugin, str(p.device), p.device_source) for p in plan.partitions] == [
        ("trt", "cuda:0", "derived"),
        ("cuda", "cuda:0", "derived"),
        ("trt", "cuda:1", "derived"),
    ]
    assert plan.owner("aten_erfinv_default") == "cuda"
    assert "aten.cumsum.default" in plan.ledger.fallback_ops()


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
    found = check(path, targets, plan=lowered.plan, plugins=Lowerer(["trt"]).plugins)
    assert all("the runtime has no" in line for line in found)


def test_engines_to_be_built_leave_the_rest_to_cuda():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return torch.cos(torch.erfinv(torch.tanh(self.linear(x))))

    plugins = [TrtPlugin(compile=True, min_block_size=2), Cuda(), "cpu"]
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
    # What neither delegate leaves the GPU for is not copied to the host and back.
    assert len(plan.copies) == 2
