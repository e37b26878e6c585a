"""The result of a branch stays as it is while later branches run."""

from support.models.small import Function
from support.quirks.control_flow import CALLS, bent, turned

from etdev import Lowerer


def test_a_result_that_is_read_before_the_next_branch_is_not_cloned():
    lowered = Lowerer([]).lower(Function(lambda x: turned(bent(x) * 2)), (CALLS[0],))
    graph = lowered.edge.exported_program().graph
    assert not [node for node in graph.nodes if "clone" in str(node.target)]
