"""Control flow that ExecuTorch's emitter doesn't know."""

from __future__ import annotations

import torch
from executorch.exir.graph_module import get_control_flow_submodules
from torch.fx import GraphModule

from etdev.errors import LoweringError
from etdev.graph.source import where


def refuse_loops(module: GraphModule) -> None:
    """Refuse loops in no delegate that ExecuTorch can't run: it has conditions, maps and scans.

    Args:
        module: Of a delegated program, or a branch of one.

    Raises:
        LoweringError: There is one.
    """
    loop = torch.ops.higher_order.while_loop
    for node in module.graph.find_nodes(op="call_function", target=loop):
        raise LoweringError(
            "to_executorch",
            f"ExecuTorch can't run while_loop, and no plugin took {node.name}{where(node)}",
            "unroll the loop, or write it with torch's scan and a fixed number of steps",
        )
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.map_impl):
        if len(node.args[1]) > 1:
            raise LoweringError(
                "to_executorch",
                f"ExecuTorch can't map over {len(node.args[1])} tensors at once, and no plugin "
                f"took {node.name}{where(node)}",
                "concatenate them, or write it with torch's scan",
            )
    for _, branch, _ in get_control_flow_submodules(module):
        refuse_loops(branch)
