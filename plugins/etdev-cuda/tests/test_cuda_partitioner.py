"""What ExecuTorch's test_cuda_partitioner.py expects of its partitioner, expected of etdev.

The foreign delegates are real XNNPACK delegates that are in the program already.
"""

import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401
import pytest
import torch
from executorch.exir import to_edge
from executorch.exir.backend.backend_api import to_backend
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import get_lowered_submodules
from support.models import decoders
from support.toys.aoti import NEEDS_1_5
from torch import nn

from etdev import Lowerer

pytestmark = pytest.mark.usefixtures("aoti")
X = (torch.randn(3, 4),)


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2


def foreign():
    """A delegate to put into a program before etdev lowers it."""
    inner = to_edge(torch.export.export(Doubled(), X)).exported_program()
    return to_backend("XnnpackBackend", inner, [])


def backend_ids(program):
    return sorted(m.backend_id for _, m, _ in get_lowered_submodules(program.graph_module))


def planned(module, inputs=X):
    return Lowerer(["cuda"]).plan(module, inputs)["forward"]


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        pytest.param(Doubled(), X, id="simple add"),
        pytest.param(nn.Conv2d(3, 16, 3, padding=1), (torch.randn(1, 3, 32, 32),), id="conv2d"),
        pytest.param(nn.Linear(128, 64), (torch.randn(8, 128),), id="linear"),
    ],
)
def test_a_graph_without_neighbours_is_one_partition(module, inputs):
    plan = planned(module.eval(), inputs)
    assert (len(plan.partitions), plan.fallback) == (1, ())


def test_an_unused_constant_is_owned():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("unused", torch.randn(10, 10))
            self.weight = nn.Parameter(torch.randn(3, 4))

        def forward(self, x):
            return x + self.weight

    (partition,) = planned(Unused()).partitions
    assert {c.target: c.storage for c in partition.constants} == {
        "unused": "owned",
        "weight": "owned",
    }


class Around(nn.Module):
    """A foreign delegate between two additions of the same constant."""

    def __init__(self):
        super().__init__()
        self.foreign = foreign()
        self.register_buffer("shared", torch.randn(3, 4))

    def forward(self, x):
        return self.foreign(x + self.shared) + self.shared


def test_nodes_of_a_foreign_delegate_are_never_taken():
    lowered = Lowerer(["cuda"]).lower(Around(), X)
    nodes = {name for partition in lowered.plan.partitions for name in partition.nodes}
    assert all("add" in name for name in nodes)
    assert backend_ids(lowered.edge.exported_program()) == [
        "CudaBackend",
        "CudaBackend",
        "XnnpackBackend",
    ]


def test_a_constant_of_a_foreign_delegate_only_is_never_taken():
    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.foreign = foreign()
            self.register_buffer("theirs", torch.randn(3, 4))

        def forward(self, x):
            return x + self.foreign(self.theirs)

    lowered = Lowerer(["cuda"]).lower(Beside(), X)
    (partition,) = lowered.plan.partitions
    assert partition.constants == ()
    program = lowered.edge.exported_program()
    readers = [node.target for node in program.graph.nodes if "b_theirs" in str(node.args)]
    assert readers == [executorch_call_delegate]
    assert "theirs" in program.state_dict


def test_nodes_on_both_sides_of_a_foreign_delegate_are_two_convex_partitions():
    plan = planned(Around())
    assert [len(part.nodes) for part in plan.partitions] == [1, 1]
    assert plan.partitions[1].split_by is not None


@NEEDS_1_5
def test_the_branches_of_control_flow_go_with_it():
    module, inputs = decoders.cond()
    lowered = Lowerer(["cuda"]).lower(module, inputs)
    (partition,) = lowered.plan.partitions
    assert {"submodule_0", "submodule_1", "cond"} <= set(partition.nodes)
    graph = lowered.edge.exported_program().graph
    assert [node.target for node in graph.find_nodes(op="get_attr")] == ["lowered_module_0"]


@NEEDS_1_5
def test_a_constant_that_two_partitions_read_is_stored_once(tmp_path):
    lowered = Lowerer(["cuda"]).lower(Around(), X)
    first, second = lowered.plan.partitions
    assert [c.storage for part in (first, second) for c in part.constants] == ["shared", "shared"]
    path = lowered.save(tmp_path / "around.pte")
    (data,) = tmp_path.glob("*.ptd")
    assert data.stat().st_size < path.stat().st_size
