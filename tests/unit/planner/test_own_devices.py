"""Devices of a kind that ExecuTorch doesn't know: planned, labelled as the host, told by a spec."""

from __future__ import annotations

import pytest
import torch
from attrs import define
from support.toys.accelerator import Accelerator
from torch import nn

from etdev import CPU, Claim, Device, Group, Lowerer, Plan, hookimpl
from etdev.errors import DeviceError, PluginError
from etdev.graph import op_name
from etdev.pte.read import read
from etdev.runtime.check import check
from etdev.schema.partition import CompileSpec

SPEC = "etdev_device"


@define(eq=False)
class Npus(Accelerator):
    """Products on npu:0 and sums on npu:1, of a backend that takes its tensors from the host."""

    name: str = "npu"
    kinds: tuple = ("npu",)

    @hookimpl
    def claim_nodes(self, program):
        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        return [
            Claim(
                "FakeAccelerator",
                [Group([node]) for node in calls if op in op_name(node)],
                compile_specs={"unit": str(index).encode()},
                device_types=self.kinds,
            )
            for index, op in enumerate(("mul", "add"))
        ]

    @hookimpl
    def resolve_device(self, partition):
        return Device("npu", int(partition.compile_specs[0].value))

    @hookimpl
    def payload_device(self, backend_id):
        return None


class Net(nn.Module):
    def forward(self, x):
        return torch.sin(x * 2 + x) + (x * 3).cos()


X = (torch.randn(4),)


def test_partitions_keep_their_devices_and_the_pte_says_which(tmp_path):
    lowered = Lowerer([Npus()]).lower(Net(), X)
    plan = lowered.plan["forward"]
    places = {part.name: (str(part.device), part.device_source) for part in plan.partitions}
    assert sorted(set(places.values())) == [("npu:0", "derived"), ("npu:1", "derived")]
    assert Plan.from_json(lowered.plan.to_json()) == lowered.plan
    # Their tensors are in the host's memory.
    assert plan.copies == ()
    artifact = read(lowered.save(tmp_path / "npu.pte", with_ledger=True))
    (method,) = artifact.methods
    assert {arena.device for arena in method.arenas} == {CPU}
    for partition, delegate in zip(plan.partitions, method.delegates, strict=True):
        assert (delegate.devices, delegate.device) == ((CPU,), partition.device)
        assert delegate.compile_specs[-1] == CompileSpec(SPEC, str(partition.device).encode())
    assert artifact.figures()["forward: FakeAccelerator delegates on npu:1"] >= 1


def test_check_names_the_ones_that_a_target_lacks(tmp_path):
    path = Lowerer([Npus()]).lower(Net(), X).save(tmp_path / "npu.pte")
    problems = check(path, [CPU, Device("npu", 0)])
    assert problems
    assert all("is on npu:1, not on cpu, npu:0; name it, as in --device" in p for p in problems)
    # This machine's runtime has no such backend, and isn't asked to load what is for another one.
    assert check(path, [CPU, Device("npu", 0), Device("npu", 1)]) == []
    (problem,) = check(path)
    assert "the runtime has no backend FakeAccelerator" in problem


def test_a_pin_wins_over_the_plugin():
    for given in ({"npu": "npu:3"}, {"npu": {"forward": Device("npu", 3)}}):
        plan = Lowerer([Npus()], devices=given).plan(Net(), X)
        assert {str(part.device) for part in plan.partitions} == {"npu:3"}
        assert {part.device_source for part in plan.partitions} == {"pinned"}


def test_without_an_answer_it_is_the_first():
    class Silent(Npus):
        @hookimpl
        def resolve_device(self):
            return None

    plan = Lowerer([Silent()]).plan(Net(), X)
    assert {str(part.device) for part in plan.partitions} == {"npu:0"}


def test_a_kind_that_the_claim_does_not_name_is_refused_with_those_that_it_names():
    with pytest.raises(DeviceError) as caught:
        Lowerer([Npus()], devices={"npu": "tpu:1"}).plan(Net(), X)
    assert str(caught.value).endswith("was put (pinned); it runs on npu")
    with pytest.raises(DeviceError, match=r"does not run on npu:\d, .*; it runs on cuda$"):
        Lowerer([Npus(kinds=("cuda",))]).plan(Net(), X)


def test_a_plugin_leaves_the_spec_to_the_host():
    class Meddling(Npus):
        @hookimpl
        def claim_nodes(self, program):
            nodes = [Group([n]) for n in program.graph.nodes if "mul" in op_name(n)]
            specs = {"unit": b"0", SPEC: b"npu:1"}
            return Claim("FakeAccelerator", nodes, compile_specs=specs, device_types=("npu",))

    with pytest.raises(PluginError, match="gives its own etdev_device compile spec"):
        Lowerer([Meddling()]).plan(Net(), X)


def test_beside_another_accelerator_only_that_one_is_copied_to():
    cuda = Accelerator("gpu", ops=("sin", "cos"), device=Device("cuda", 0))
    plan = Lowerer([Npus(), cuda]).plan(Net(), X)["forward"]
    assert plan.copies
    assert {str(end) for copy in plan.copies for end in (copy.source, copy.target)} == {
        "cpu", "cuda:0",
    }  # fmt: skip
