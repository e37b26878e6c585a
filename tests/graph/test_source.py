"""Source lines: those of the user's code, the same in every process."""

import torch

from etdev.graph import nodes
from etdev.testing.programs import Branch


def lines():
    program = torch.export.export(Branch(), (torch.ones(2, 4),))
    (branch, *_) = [m for m in program.graph_module.children() if hasattr(m, "graph")]
    return [nodes.line_of(node) for node in branch.graph.nodes if node.op == "call_function"]


def test_the_line_of_a_node_in_a_branch_does_not_count_what_torch_generated_before():
    assert lines() == lines()
    assert not any("eval_with_key" in line for line in lines())
