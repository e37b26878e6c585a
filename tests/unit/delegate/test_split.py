"""Programs of partitions, which are made without torch's checks, would pass them."""

import pytest
import torch
from support.toys.accelerator import Accelerator

from etdev import Lowerer
from etdev.delegate.split import Split
from etdev.testing.programs import PROGRAMS, Layer, exported

DYNAMIC = [False, True]


@pytest.mark.slice("True")
@pytest.mark.parametrize("model", PROGRAMS)
@pytest.mark.parametrize("dynamic", DYNAMIC)
def test_torch_finds_no_fault_in_the_programs_of_partitions(model, dynamic):
    decision = Lowerer([Accelerator()]).decide(exported(model, dynamic))
    partitions = decision.plan["forward"].partitions
    split = Split(decision.programs["forward"], partitions)
    assert partitions
    for partition, program in zip(partitions, split.programs, strict=True):
        for each in (program, split.isolated(partition)):
            each.validate()
            assert str(each.graph_signature) == str(program.graph_signature)
            assert each.graph is not program.graph or each is program


def test_a_backend_that_changes_its_program_changes_no_other():
    decision = Lowerer([Accelerator()]).decide(exported(Layer))
    (partition,) = decision.plan["forward"].partitions
    split = Split(decision.programs["forward"], [partition])
    (program,), own = split.programs, split.isolated(partition)
    for value in own.state_dict.values():
        value.data.zero_()
    own.graph.erase_node(own.graph.output_node())
    for spec in own.graph_signature.input_specs:
        spec.target = spec.arg.name = "gone"
    program.validate()
    assert all(torch.any(value) for value in program.state_dict.values())
