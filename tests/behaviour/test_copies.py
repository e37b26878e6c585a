"""Copies between devices: as few as can be, never more than ExecuTorch makes, all in the plan."""

import pytest
from support.models.copies import CASES

from etdev.pte.read import methods_of


def count(manager):
    """Copies to devices and back, over all methods."""
    methods = methods_of(manager.executorch_program)
    return sum(m.host_to_device for m in methods), sum(m.device_to_host for m in methods)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_program_is_emitted_with_the_fewest_copies(case):
    lowered = case.lower()
    copies = [copy for method in lowered.plan.methods for copy in method.copies]
    down = sum(not copy.source.is_cpu for copy in copies)
    assert (len(copies) - down, down) == case.minimum
    ours = count(lowered.to_executorch())
    # ExecuTorch's own pass over the very same partitions.
    theirs = count(lowered.edge.to_executorch())
    assert ours == case.minimum
    assert ours[0] <= theirs[0]
    assert ours[1] <= theirs[1]
