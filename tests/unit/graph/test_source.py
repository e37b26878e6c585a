"""Source lines: those of the user's code, the same in every process."""

import torch
from support.models.small import Function

from etdev.graph import nodes
from etdev.testing.programs import Branch


def lines():
    program = torch.export.export(Branch(), (torch.ones(2, 4),))
    (branch, *_) = [m for m in program.graph_module.children() if hasattr(m, "graph")]
    return [nodes.line_of(node) for node in branch.graph.nodes if node.op == "call_function"]


def test_the_line_of_a_node_in_a_branch_does_not_count_what_torch_generated_before():
    assert lines() == lines()
    assert not any("eval_with_key" in line for line in lines())


def test_a_size_that_torch_reads_for_itself_has_neither_a_line_nor_a_module():
    """It comes before what asks for it, with a stack of torch's own."""
    shapes = (({0: torch.export.Dim("rows", min=1, max=8)},),)
    model, inputs = Function(lambda x: x.reshape(x.shape[0] * 4)), (torch.ones(2, 4),)
    graph = torch.export.export(model, inputs, dynamic_shapes=shapes).graph
    (size,) = (node for node in graph.nodes if "sym_size" in node.name)
    assert "runtime_assert" in size.meta["stack_trace"]
    assert (nodes.line_of(size), nodes.module_paths(size)) == ("", [])
