"""Delegates that a program comes with: opaque, never touched, and still running.

Who gets what around them is in unit/planner/cases/foreign.txt.
"""

import pytest
import torch
from executorch.exir.lowered_backend_module import get_lowered_submodules
from support.models import foreign
from support.models.foreign import X
from support.toys.runtime import assert_agrees, delegates

from etdev import Lowerer

KINDS = {
    "reexported": (foreign.outer, foreign.reexported),
    "partly_lowered": (foreign.net, foreign.partly_lowered),
}


@pytest.mark.slice("partly_lowered")
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_with_a_delegate_is_lowered_around_it(kind):
    eager, program = (make() for make in KINDS[kind])
    (before,) = [m for _, m, _ in get_lowered_submodules(program.graph_module)]
    lowered = Lowerer(["cpu"]).lower(program)
    assert lowered.plan.partitions
    after = delegates(lowered.edge)
    assert len(after) == len(lowered.plan.partitions) + 1
    assert [m.processed_bytes for m in after].count(before.processed_bytes) == 1
    assert_agrees(lowered, eager, (X,))


def test_constants_that_only_a_foreign_delegate_reads_are_not_touched():
    torch.manual_seed(0)
    module = foreign.Passed().eval()
    lowered = Lowerer(["cpu"]).lower(module, (X,))
    kept = lowered.edge.exported_program()
    assert list(kept.graph_signature.inputs_to_parameters.values()) == ["weight"]
    assert all(c.target != "weight" for p in lowered.plan.partitions for c in p.constants)
    assert_agrees(lowered, module, (X,))


def test_the_program_it_came_in_is_not_changed():
    program = foreign.partly_lowered()
    before = str(program.graph)
    Lowerer(["cpu"]).lower(program).to_executorch()
    assert str(program.graph) == before
