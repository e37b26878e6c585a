"""Delegates that a program comes with: opaque, never touched, and still running."""

import pytest
import torch
from executorch.backends.xnnpack.partition.config.gemm_configs import LinearConfig
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.exir.backend.backend_api import to_backend
from executorch.exir.lowered_backend_module import get_lowered_submodules
from executorch.runtime import Runtime
from torch import nn

from etdev import Claim, Group, Lowerer, Pin, hookimpl
from etdev.schema.ledger import Verdict

X = torch.randn(4, 4)


def execute(lowered, x):
    program = Runtime.get().load_program(lowered.to_executorch().buffer)
    return program.load_method("forward").execute([x])[0]


def delegates(manager):
    return [m for _, m, _ in get_lowered_submodules(manager.exported_program().graph_module)]


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))

    def forward(self, x):
        return x * 2 + self.weight


@pytest.fixture
def reexported():
    """A module lowered by itself, called by another one and exported again with it.

    Its delegate call has a single output and no getitem.
    """
    torch.manual_seed(0)
    inner = to_edge(torch.export.export(Inner(), (X,))).exported_program()
    delegate = to_backend("XnnpackBackend", inner, [])

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.delegate, self.linear = delegate, nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(self.delegate(x + 1)) - 1

    module = Outer().eval()
    return module, torch.export.export(module, (X,))


@pytest.fixture
def partly_lowered():
    """An edge program whose linear layer is a delegate of ExecuTorch's own making."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

        def forward(self, x):
            return torch.sigmoid(self.norm(self.linear(x)) * 2) + x

    torch.manual_seed(0)
    module = Net().eval()
    partitioner = XnnpackPartitioner(configs=[LinearConfig])
    program = torch.export.export(module, (X,))
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner])
    return module, manager.exported_program()


@pytest.mark.parametrize("kind", ["reexported", "partly_lowered"])
def test_a_program_with_a_delegate_is_lowered_around_it(kind, request):
    module, program = request.getfixturevalue(kind)
    (before,) = [m for _, m, _ in get_lowered_submodules(program.graph_module)]
    lowered = Lowerer(["cpu"]).lower(program)
    assert lowered.plan.partitions
    after = delegates(lowered.edge)
    assert len(after) == len(lowered.plan.partitions) + 1
    assert [m.processed_bytes for m in after].count(before.processed_bytes) == 1
    torch.testing.assert_close(execute(lowered, X), module(X), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["reexported", "partly_lowered"])
def test_a_plugin_that_claims_everything_gets_nothing_of_a_foreign_delegate(kind, request):
    class Greedy:
        name = "greedy"

        @hookimpl
        def claim_nodes(self, program):
            import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

            nodes = [n for n in program.graph.nodes if n.op in ("call_function", "get_attr")]
            return Claim("XnnpackBackend", [Group([node]) for node in nodes])

    _, program = request.getfixturevalue(kind)
    plan = Lowerer([Greedy()]).plan(program)["forward"]
    owned = {name for part in plan.partitions for name in part.nodes}
    (call,) = [entry for entry in plan.ledger if entry.foreign]
    assert call.owner is None
    assert call.verdicts == (
        Verdict("greedy", "foreign", "lowered_module_0 belongs to a delegate"),
    )
    assert not any("lowered_module" in name for name in owned)
    assert plan.ledger.owned()["foreign"] == 1
    assert "call_delegate" not in plan.ledger.fallback_ops()


def test_a_group_that_reaches_into_a_delegate_is_lost_whole(partly_lowered):
    class Reaching:
        name = "reaching"

        @hookimpl
        def claim_nodes(self, program):
            nodes = [n for n in program.graph.nodes if n.op == "call_function"]
            return Claim("XnnpackBackend", [Group(nodes)])

    plan = Lowerer([Reaching()]).plan(partly_lowered[1])["forward"]
    assert plan.partitions == ()


def test_constants_that_only_a_foreign_delegate_reads_are_not_touched():
    class Passed(nn.Module):
        """The delegate gets its weight from outside."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4, 4))
            example = torch.export.export(Product(), (X, X))
            self.delegate = to_backend("XnnpackBackend", to_edge(example).exported_program(), [])

        def forward(self, x):
            return self.delegate(x + 1, self.weight) + 1

    class Product(nn.Module):
        def forward(self, x, weight):
            return x * weight

    module = Passed().eval()
    lowered = Lowerer(["cpu"]).lower(module, (X,))
    kept = lowered.edge.exported_program()
    assert list(kept.graph_signature.inputs_to_parameters.values()) == ["weight"]
    assert all(c.target != "weight" for p in lowered.plan.partitions for c in p.constants)
    torch.testing.assert_close(execute(lowered, X), module(X), atol=1e-5, rtol=1e-4)


def test_the_program_it_came_in_is_not_changed(partly_lowered):
    _, program = partly_lowered
    before = str(program.graph)
    Lowerer(["cpu"]).lower(program).to_executorch()
    assert str(program.graph) == before


def test_a_delegate_that_a_program_comes_with_can_not_be_pinned(reexported):
    _, program = reexported
    lowerer = Lowerer(["cpu"], pins=[Pin("portable", op="*")], strict=True)
    ledger = lowerer.plan(program)["forward"].ledger
    assert {entry.op for entry in ledger if entry.pin is None} == {"call_delegate"}
    assert {entry.owner for entry in ledger} == {None}
