"""Constants and buffers: the right value at every step, and as often in the .pte as the plan says.

Who owns which is in unit/planner/cases/constants.txt.
"""

import pytest
import torch
from executorch.exir import to_edge
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data, tag_mutated_buffer
from support.toys import Takes
from support.toys.accelerator import Accelerator
from support.toys.runtime import assert_agrees, delegates
from torch import nn

from etdev import Device, Lowerer
from etdev.pte.read import read


class Cache(nn.Module):
    """A buffer that is read, then written: its new value is read by nobody."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(2, 2))
        self.register_buffer("scale", torch.full((2, 2), 3.0))

    def forward(self, x):
        old = self.state * self.scale
        self.state.copy_(self.state + x)
        return old


class OldReadElsewhere(Cache):
    """As Cache, but a cosine reads the old value outside."""

    def forward(self, x):
        old = self.state.cos() * self.scale
        self.state.copy_(self.state + x)
        return old


class NewReadElsewhere(Cache):
    """As Cache, but a cosine reads the new value outside."""

    def forward(self, x):
        old = self.state * self.scale
        self.state.copy_(self.state + x)
        return old + self.state.cos()


class NewReturned(Cache):
    """As Cache, but the method returns the new value too."""

    def forward(self, x):
        self.state.copy_(self.state + x)
        return self.state * self.scale, self.state


X = (torch.ones(2, 2),)
ARITHMETIC = ("mul.Tensor", "add.Tensor")


def test_a_buffer_that_only_one_partition_sees_is_owned_by_it():
    lowered = Lowerer([Accelerator(ops=ARITHMETIC)]).lower(Cache(), X)
    (partition,) = lowered.plan.partitions
    assert {c.target: c.storage for c in partition.constants} == {
        "state": "owned",
        "scale": "owned",
    }
    (delegate,) = delegates(lowered.edge)
    inner, outer = delegate.original_module, lowered.edge.exported_program()
    assert list(inner.graph_signature.buffers_to_mutate.values()) == ["state"]
    assert outer.graph_signature.buffers_to_mutate == {}
    assert outer.graph_signature.inputs_to_buffers == {}
    assert outer.state_dict == {}
    lowered.to_executorch()


def test_an_owned_buffer_looks_as_executorch_would_make_it():
    class Tags(Partitioner):
        def partition(self, exported_program):
            for node in exported_program.graph.nodes:
                if node.op == "call_function":
                    node.meta["delegation_tag"] = "all"
            tag_constant_data(exported_program)
            tag_mutated_buffer(exported_program)
            return PartitionResult(exported_program, {"all": DelegationSpec("FakeAccelerator", [])})

    program = torch.export.export(Cache(), X)
    theirs = to_edge(program).to_backend(Tags())
    ours = Lowerer([Accelerator(ops=ARITHMETIC)]).lower(program).edge
    for a, b in zip(delegates(ours), delegates(theirs), strict=True):
        mine, other = a.original_module.graph_signature, b.original_module.graph_signature
        assert [s.kind for s in mine.input_specs] == [s.kind for s in other.input_specs]
        assert [(s.kind, s.target) for s in mine.output_specs] == [
            (s.kind, s.target) for s in other.output_specs
        ]
    mine, other = (m.exported_program().graph_signature for m in (ours, theirs))
    assert [s.kind for s in mine.input_specs] == [s.kind for s in other.input_specs]
    assert [s.kind for s in mine.output_specs] == [s.kind for s in other.output_specs]


@pytest.mark.slice("Cache", "NewReadElsewhere")
@pytest.mark.parametrize("model", [Cache, OldReadElsewhere, NewReadElsewhere, NewReturned])
def test_every_reader_sees_the_right_value_at_every_step(model):
    # XNNPACK can't hold state, so the arithmetic is claimed without the buffer.
    lowered = Lowerer([Takes("early", ("cos.default",)), "cpu"]).lower(model(), X)
    assert_agrees(lowered, model(), *((torch.full((2, 2), step),) for step in (1.0, 2.0, 3.0)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64, bias=False)

    def forward(self, x):
        return self.linear(torch.cumsum(self.linear(x), 0))


class ReadOutside(Tied):
    def forward(self, x):
        return self.linear(x) + torch.index_select(self.linear.weight, 0, x.argmax(1))


def stored(plan):
    return [(c.target, c.storage, c.copies) for p in plan.partitions for c in p.constants]


def test_delegates_of_a_backend_with_named_data_store_a_weight_once(tmp_path):
    module, x = Tied().eval(), torch.randn(64, 64)
    lowered = Lowerer(["cpu"]).lower(module, (x,))
    assert stored(lowered.plan) == [("linear.weight", "shared", 1)] * 2
    assert lowered.plan["forward"].copied_bytes == 0
    facts = read(lowered.save(tmp_path / "tied.pte"))
    assert 64 * 64 * 4 <= facts.named_bytes + facts.constants_bytes < 2 * 64 * 64 * 4


def test_a_weight_that_a_kernel_reads_too_is_copied_and_yet_in_the_file_once(tmp_path):
    module, x = ReadOutside().eval(), torch.randn(64, 64)
    plan = (lowered := Lowerer(["cpu"]).lower(module, (x,))).plan
    assert ("linear.weight", "copied", 2) in stored(plan)
    assert plan["forward"].copied_bytes == 64 * 64 * 4
    facts = read(lowered.save(tmp_path / "read.pte"))
    assert 64 * 64 * 4 <= facts.named_bytes + facts.constants_bytes < 2 * 64 * 64 * 4
    assert lowered.plan.stored_again == ()


@pytest.mark.parametrize("inside", [True, False])
def test_a_constant_outside_that_feeds_a_device_delegate_is_emitted(inside):
    accelerator = Accelerator(device=Device("cuda", 0), constants=inside, ops=ARITHMETIC)

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.full((2, 2), 3.0))

        def forward(self, x):
            return (x * self.scale).cos() * self.scale

    lowered = Lowerer([accelerator]).lower(Scale(), X)
    assert lowered.to_executorch().buffer


def test_an_unused_parameter_is_dropped_with_nothing_lost():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    module = Unused().eval()
    assert_agrees(Lowerer(["cpu"]).lower(module, X), module, X)


def test_a_buffer_that_nobody_reads_goes_to_the_first_plugin_that_claims_it():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("unused", torch.ones(10000))
            self.register_buffer("used", torch.ones(2))

        def forward(self, x):
            return torch.relu(x * x) + self.used

    takers = [
        Takes("shy", ("mul.Tensor",), constants=False),
        Takes("owner", ("relu.default",)),
        Takes("late", ("add.Tensor",)),
    ]
    module = Unused()
    lowered = Lowerer(takers).lower(module, X)
    held = {
        part.plugin: {c.target: c.storage for c in part.constants}
        for part in lowered.plan.partitions
    }
    assert held == {"shy": {}, "owner": {"unused": "owned"}, "late": {"used": "owned"}}
    assert len(lowered.to_executorch().buffer) < module.unused.nbytes
    assert_agrees(lowered, module, X)
