"""Numbers and devices: what a CUDA delegate can't be called with, and where values are."""

import functools

import pytest
import torch
from etdev_cuda.payload import BACKEND_ID
from etdev_cuda.plugin import CudaPlugin
from etdev_cuda.support import Support, by_device, devices
from executorch.exir import EdgeCompileConfig, to_edge
from support.models.small import Function
from support.toys import Takes
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from etdev import Device, Lowerer, Partition
from etdev.errors import DeviceError

pytestmark = pytest.mark.usefixtures("quick_conversion")

ROWS = {"x": {0: torch.export.Dim("rows", min=2, max=16)}}
X = (torch.randn(4, 6),)


class Reshaped(nn.Module):
    """A dynamic size that two reshapes read, with a cosine between them."""

    def forward(self, x):
        y = x.reshape(x.shape[0] * 2, 3).cos()
        return y.reshape(x.shape[0], 6) + 1


def crossing(part):
    return [tensor.name for tensor in (*part.inputs, *part.outputs) if tensor.dtype == "scalar"]


def test_alone_it_takes_the_numbers_too():
    plan = Lowerer(["cuda"]).plan(Reshaped(), X, dynamic_shapes=ROWS)["forward"]
    assert (len(plan.partitions), plan.fallback) == (1, ())


def test_no_number_crosses_the_border_of_a_delegate():
    taker = Takes("taker", ("cos.default",))
    plan = Lowerer([taker, "cuda"]).plan(Reshaped(), X, dynamic_shapes=ROWS)["forward"]
    assert {part.plugin for part in plan.partitions} == {"taker", "cuda"}
    assert [crossing(part) for part in plan.partitions if part.plugin == "cuda"] == [[]]


def test_a_number_that_the_method_returns_stays_outside_with_its_readers():
    sized = Function(lambda x: (x.cos(), x.shape[0] * 2))
    plan = Lowerer(["cuda"]).plan(sized, X, dynamic_shapes=((ROWS["x"],),))["forward"]
    (partition,) = plan.partitions
    assert partition.nodes == ("aten_cos_default",)
    codes = {plan.ledger[name].verdicts[0].code for name in plan.fallback}
    assert codes == {"scalar"}


def test_a_number_out_of_a_tensor_stays_outside_with_its_readers():
    offset = Function(lambda x, n: (x + n.item()).cos())
    plan = Lowerer(["cuda"]).plan(offset, (X[0], torch.tensor(3)))["forward"]
    assert [crossing(part) for part in plan.partitions] == [[]]
    codes = {plan.ledger[name].verdicts[0].code for name in plan.fallback}
    assert codes <= {"scalar"}


def on(device, *names):
    """A transform that puts the values of some nodes, all of them without names, on a device.

    Stands in for a program that was exported on a GPU, which differs only in this.
    """

    def moved(value):
        if not isinstance(value, FakeTensor):
            return value
        meta = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        return FakeTensor(value.fake_mode, meta, torch.device(device))

    def transform(program):
        for node in program.graph.nodes:
            if node.op != "output" and (not names or node.name in names):
                node.meta["val"] = pytree.tree_map(moved, node.meta["val"])
        return program

    return transform


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return self.second(self.first(x).relu())


def program(*transforms):
    """Two linear layers in the edge dialect, after some transforms."""
    edge = to_edge(
        torch.export.export(Two(), X), compile_config=EdgeCompileConfig(_check_ir_validity=False)
    ).exported_program()
    for transform in transforms:
        transform(edge)
    return edge


@functools.cache
def names():
    """Names of the nodes of `program`."""
    return [node.name for node in program().graph.nodes if node.op == "call_function"]


def claims(edge):
    """Names of the nodes that are claimed for each device."""
    groups, _ = Support(BACKEND_ID).match(edge, {})
    return [[n for group in near for n in group.nodes] for near in by_device(edge, groups)]


def resolved(edge, nodes):
    partition = Partition("cuda_0", "forward", "cuda", "CudaBackend", tuple(nodes))
    return CudaPlugin().resolve_device(edge, partition)


def test_values_on_a_gpu_are_found():
    edge = program(on("cuda:1"))
    assert set(devices(edge).values()) == {Device("cuda", 1)}
    (nodes,) = claims(edge)
    assert resolved(edge, nodes) == Device("cuda", 1)


def test_values_on_two_gpus_are_claimed_apart():
    first, second = names()[:2], names()[2:]
    edge = program(on("cuda:0"), on("cuda:1", *second))
    assert claims(edge) == [first, second]
    assert resolved(edge, second) == Device("cuda", 1)
    with pytest.raises(DeviceError) as caught:
        resolved(edge, names())
    assert str(caught.value) == (
        "cuda: forward/cuda_0 has values on cuda:0 and cuda:1; "
        "move one of them, or pin the plugin to a device"
    )


def test_values_on_the_cpu_go_with_the_first_gpu():
    edge = program(on("cuda:1", *names()[2:]))
    assert claims(edge) == [names()]
    assert resolved(edge, names()) == Device("cuda", 1)
    assert resolved(program(), names()) is None
