"""Devices from claim to .pte: labels, arenas, copies that are left to the caller, and refusals.

Mirrors what ExecuTorch's own tests of its device pass, its emitter and its memory planning specify,
for programs lowered by etdev, and what those leave open. test_copies.py counts copies, and
unit/planner/cases/devices.txt has pins and what a plan says of copies.
"""

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.backend.backend_api import to_backend
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.propagate_device_config import PropagateDeviceConfig
from executorch.exir.schema import DeviceType
from support.toys.accelerator import Accelerator
from torch import nn
from torch.export import Dim

from etdev import Device, Lowerer
from etdev.errors import AuditError, DeviceError, EtdevWarning
from etdev.pte.read import methods_of, read

CPU, CUDA0, CUDA1 = Device("cpu"), Device("cuda", 0), Device("cuda", 1)
X = (torch.randn(2, 2), torch.randn(2, 2))


class Add(nn.Module):
    def forward(self, x, y):
        return x + y


class Chain(nn.Module):
    """Two delegates and a kernel between: add, cumsum, add."""

    def forward(self, x, y):
        return torch.cumsum(x + y, 0) + y


class Neighbours(nn.Module):
    """A sum that feeds a product directly."""

    def forward(self, x, y):
        return (x + y) * y


def adder(device, name="adder"):
    return Accelerator(name, ops=("add.Tensor",), device=device)


def multiplier(device, name="multiplier"):
    return Accelerator(name, ops=("mul.Tensor",), device=device)


def facts(lowered, config=None):
    (method,) = methods_of(lowered.to_executorch(config).executorch_program)
    return method


def copies(lowered, config=None):
    method = facts(lowered, config)
    return method.host_to_device, method.device_to_host


def skipping(inputs, outputs=False):
    """A config that leaves copies to the caller."""
    return ExecutorchBackendConfig(
        propagate_device_config=PropagateDeviceConfig(
            skip_h2d_for_method_inputs=inputs, skip_d2h_for_method_outputs=outputs
        )
    )


def planned(lowered):
    return [(c.tensor.name, str(c.source), str(c.target)) for c in lowered.plan["forward"].copies]


# What ExecuTorch's tests specify


def test_inputs_are_copied_in_and_outputs_out():
    lowered = Lowerer([adder(CUDA0)]).lower(Add(), X)
    assert planned(lowered) == [
        ("x", "cpu", "cuda:0"),
        ("y", "cpu", "cuda:0"),
        ("aten_add_tensor", "cuda:0", "cpu"),
    ]
    method = facts(lowered)
    assert (method.host_to_device, method.device_to_host) == (2, 1)
    assert [delegate.devices for delegate in method.delegates] == [(CUDA0,)]
    assert [value.device for value in (*method.inputs, *method.outputs)] == [CPU] * 3


def test_no_device_means_no_copies_and_no_labels():
    lowered = Lowerer([adder(None)]).lower(Add(), X)
    program = lowered.to_executorch().executorch_program
    (plan,) = program.execution_plan
    assert copies(lowered) == (0, 0)
    assert not plan.non_const_buffer_device
    tensors = [v.val for v in plan.values if type(v.val).__name__ == "Tensor"]
    assert all(tensor.extra_tensor_info is None for tensor in tensors)


def test_every_index_has_an_arena_of_its_own():
    lowered = Lowerer([adder(CUDA1), multiplier(CUDA0)]).lower(Neighbours(), X)
    arenas = {str(arena.device) for arena in facts(lowered).arenas}
    assert arenas == {"cpu", "cuda:0", "cuda:1"}
    assert facts(lowered).misplaced == ()


def test_labels_survive_to_the_file_and_back(tmp_path):
    lowered = Lowerer([adder(CUDA1)]).lower(Add(), X)
    (method,) = read(lowered.save(tmp_path / "add.pte")).methods
    (delegate,) = method.delegates
    assert delegate.devices == (CUDA1,)
    assert [(spec.key, spec.value) for spec in delegate.compile_specs] == [
        ("target_device", b"cuda:1")
    ]
    assert [str(arena.device) for arena in method.arenas] == ["cpu", "cuda:1"]


def test_kernels_get_only_host_tensors():
    lowered = Lowerer([adder(CUDA0)]).lower(Chain(), X)
    method = facts(lowered)
    assert method.kernels == {"aten::cumsum.out": 1}
    assert method.misplaced == ()


SKIPS = [(True, False, (0, 1)), (False, True, (2, 0)), (True, True, (0, 0))]


@pytest.mark.parametrize(("inputs", "outputs", "left"), SKIPS)
def test_copies_can_be_left_to_the_caller(inputs, outputs, left):
    config = skipping(inputs, outputs)
    lowered = Lowerer([adder(CUDA0)]).lower(Add(), X)
    method = facts(lowered, config)
    assert (method.host_to_device, method.device_to_host) == left
    assert {value.device for value in method.inputs} == {CUDA0 if inputs else CPU}
    assert {value.device for value in method.outputs} == {CUDA0 if outputs else CPU}


def test_skipped_inputs_are_not_planned():
    config = skipping(inputs=True)
    program = Lowerer([adder(CUDA0)]).lower(Add(), X).to_executorch(config).executorch_program
    (plan,) = program.execution_plan
    assert [plan.values[index].val.allocation_info for index in plan.inputs] == [None, None]
    assert config.memory_planning_pass.alloc_graph_input


def test_a_partly_skippable_delegate_keeps_the_copy_of_its_other_input():
    config = skipping(inputs=True)

    class Partly(nn.Module):
        def forward(self, x, y):
            return torch.cumsum(x, 0) + y

    assert copies(Lowerer([adder(CUDA0)]).lower(Partly(), X), config) == (1, 1)


# What they leave open


def test_skipping_leaves_alone_an_input_that_the_host_reads_too():
    config = skipping(inputs=True)

    class Both(nn.Module):
        def forward(self, x, y):
            return x + y, torch.cumsum(x, 0)

    with pytest.warns(EtdevWarning, match="method forward: input x is still copied to cuda:0"):
        method = facts(Lowerer([adder(CUDA0)]).lower(Both(), X), config)
    assert [value.device for value in method.inputs] == [CPU, CUDA0]
    assert method.host_to_device == 1


def test_skipping_works_for_an_input_shared_by_delegates_of_one_device():
    config = skipping(inputs=True)
    assert copies(Lowerer([adder(CUDA0)]).lower(Chain(), X), config) == (1, 2)


def test_skips_given_per_method_are_per_method():
    lowered = Lowerer([adder(CUDA0)]).lower({"one": (Add(), X), "two": (Add(), X)})
    config = skipping(inputs={"two": True})
    one, two = methods_of(lowered.to_executorch(config).executorch_program)
    assert (one.name, one.host_to_device) == ("one", 2)
    assert (two.name, two.host_to_device) == ("two", 0)


def test_without_device_planning_a_tensor_that_needs_two_labels_is_refused():
    lowered = Lowerer([adder(CUDA0)]).lower(Chain(), X)
    with pytest.raises(DeviceError) as caught:
        lowered.to_executorch(ExecutorchBackendConfig(enable_non_cpu_memory_planning=False))
    assert str(caught.value) == (
        "method forward: getitem is needed on cpu and cuda:0, and without device memory planning "
        "it can have one label only, with which one of them would read memory of another; leave "
        "enable_non_cpu_memory_planning on"
    )


def test_without_device_planning_a_tensor_that_needs_one_label_is_labelled():
    lowered = Lowerer([adder(CUDA0)]).lower(Add(), X)
    config = ExecutorchBackendConfig(enable_non_cpu_memory_planning=False)
    method = facts(lowered, config)
    assert (method.host_to_device, method.device_to_host) == (0, 0)
    assert method.delegates[0].devices == (CUDA0,)


def test_a_memory_planning_pass_that_mixes_devices_is_refused():
    class Mixes(MemoryPlanningPass):
        def run(self, graph_module, graph_signature=None):
            self.enable_non_cpu_memory_planning = False
            return super().run(graph_module, graph_signature)

    lowered = Lowerer([adder(CUDA0)]).lower(Add(), X)
    with pytest.raises(AuditError) as caught:
        lowered.to_executorch(ExecutorchBackendConfig(memory_planning_pass=Mixes()))
    assert "a tensor on cuda:0 has its memory on cpu" in str(caught.value)


def test_the_callers_config_is_not_changed():
    config = ExecutorchBackendConfig()
    before = dict(vars(config))
    Lowerer([adder(CUDA0)]).lower(Add(), X).to_executorch(config)
    assert vars(config) == before


def test_dynamic_copies_count_their_upper_bound():
    shapes = {"x": {0: Dim("rows", max=64)}, "y": {0: Dim("rows", max=64)}}
    lowered = Lowerer([adder(CUDA0)]).lower(Add(), X, dynamic_shapes=shapes)
    sizes = [(c.tensor.dynamic, c.tensor.size_bytes) for c in lowered.plan["forward"].copies]
    assert sizes == [(True, 64 * 2 * 4)] * 3
    assert copies(lowered) == (2, 1)


def test_a_constant_outside_is_cloned_once_and_copied_once():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.full((2, 2), 3.0))

        def forward(self, x):
            return torch.cumsum(x * self.scale, 0) * self.scale

    plugin = Accelerator(ops=("mul.Tensor",), device=CUDA0, constants=False)
    lowered = Lowerer([plugin]).lower(Scale(), X[:1])
    assert facts(lowered).kernels["aten::clone.out"] == 1
    assert copies(lowered) == (3, 2)


def single_output(device):
    """An addition lowered by itself, for a device, and called by another module."""
    specs = [CompileSpec("target_device", device.encode())]
    inner = to_edge(torch.export.export(Add(), X)).exported_program()
    delegate = to_backend("FakeAccelerator", inner, specs)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.delegate = delegate

        def forward(self, x, y):
            return torch.cumsum(self.delegate(x, y) * y, 0)

    return Outer()


@pytest.mark.slice("other1-expected1")
@pytest.mark.parametrize(("other", "expected"), [(None, (2, 1)), (CUDA0, (2, 1)), (CUDA1, (4, 2))])
def test_a_foreign_delegate_with_one_output_is_copied_back_too(other, expected):
    plugins = [multiplier(other)] if other else []
    lowered = Lowerer(plugins).lower(single_output("cuda:0"), X)
    assert copies(lowered) == expected
    assert facts(lowered).misplaced == ()


@pytest.mark.slice("False")
@pytest.mark.parametrize("nested", [False, True])
def test_a_foreign_delegate_on_a_device_in_a_branch_is_refused_by_name(nested):
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = single_output("cuda:0").delegate

        def forward(self, x, y):
            return torch.cond(x.sum() > 0, self.outer if nested else self.called, torch.mul, (x, y))

        def outer(self, x, y):
            return torch.cond(y.sum() > 0, self.called, torch.mul, (x, y))

        def called(self, x, y):
            return self.inner(x, y) * 1

    with pytest.raises(DeviceError) as caught:
        Lowerer([]).plan(Branches(), X)
    assert "is a delegate on cuda:0, where ExecuTorch makes no copies" in str(caught.value)


def test_a_delegate_without_a_lowered_module_is_an_error():
    from executorch.exir.passes.propagate_device_pass import PropagateDevicePass

    lowered = Lowerer([adder(CUDA0)]).lower(Add(), X)
    module = lowered.edge.exported_program().graph_module
    module.lowered_module_0 = nn.Module()
    with pytest.raises(RuntimeError, match="does not reference a valid LoweredBackendModule"):
        PropagateDevicePass()(module)


def test_device_types_are_executorchs_own():
    assert {member.name for member in DeviceType} == {"CPU", "CUDA"}
