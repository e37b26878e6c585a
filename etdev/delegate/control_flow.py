"""Control flow: what ExecuTorch would read in the wrong place, or overwrite, is cloned.

ExecuTorch plans the memory of all branches of a graph in one place, each as if it ran alone, and
the result of a `torch.cond` stays there, while a view of it is read where nothing was put. It gives
the bodies of maps and scans memory for all their inputs, and views of them are read there, though
only rows are ever put there: what is carried or captured stays where it is.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.graph_module import get_control_flow_submodules
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from etdev.graph.nodes import op_name
from etdev.graph.ops import is_flow

_COND = torch.ops.higher_order.cond
_MAP = torch.ops.higher_order.map_impl
_SCAN = torch.ops.higher_order.scan
_VIEW = "aten.view_copy.default"


def keep_results(graph: Graph, root: Mapping[str, Any]) -> dict[Node, Node]:
    """Clone results of branches that are viewed or outlive another, and what bodies view.

    Args:
        graph: The graph; it and its branches are changed.
        root: What its get_attrs read, by target.

    Returns:
        The clone of each result.
    """
    for branch in root.values():
        if isinstance(branch, GraphModule) and keep_results(branch.graph, branch._modules):
            branch.recompile()
    for view in misplaced_views(graph, root):
        source = view.all_input_nodes[0]
        with view.graph.inserting_before(view):
            # ExecuTorch checks branches, and takes one of two ops for a clone by its settings.
            same = (source, list(range(source.meta["val"].dim())))
            copied = view.graph.call_function(exir_ops.edge.aten.permute_copy.default, same)
        copied.meta = {"val": source.meta["val"]}
        view.replace_input_with(source, copied)
        if view.graph.owning_module is not None:
            view.graph.owning_module.recompile()
    clones = {}
    for result in overwritten_results(graph):
        with graph.inserting_after(result):
            clone = graph.call_function(exir_ops.edge.aten.clone.default, (result,))
        clone.meta = {"val": result.meta["val"]}
        result.replace_all_uses_with(clone)
        clone.args = (result,)
        clones[result] = clone
    return clones


def misplaced_views(graph: Graph, root: Mapping[str, Any]) -> Iterator[Node]:
    """The views, in the bodies of maps and scans, of what is carried or captured.

    Args:
        graph: The graph that has the maps and scans; those in its branches are not looked at.
        root: What its get_attrs read, by target.
    """
    for node in graph.nodes:
        if node.target not in (_MAP, _SCAN):
            continue
        body: Any = node.args[0]
        # map_impl(body, rows, captured), scan(body, carried, rows, captured)
        given = [len(values) for values in node.args[1:]]
        first = sum(given[:-2])
        inputs = root[body.target].graph.find_nodes(op="placeholder")
        for bound in (*inputs[:first], *inputs[first + given[-2] :]):
            yield from [user for user in bound.users if op_name(user) == _VIEW]


def overwritten_results(graph: Graph, late: Mapping[str, int] | None = None) -> list[Node]:
    """The results of flows in a graph that are viewed, or of `torch.cond` and outlive the next.

    Args:
        graph: The graph; its branches are not looked at.
        late: Positions of nodes that run later than the graph says, by name.
    """
    late = late or {}
    position = {node: late.get(node.name, index) for index, node in enumerate(graph.nodes)}
    return [
        result
        for flow in graph.nodes
        if is_flow(flow.target)
        for result in flow.users
        if result.target is operator.getitem
        and isinstance(result.meta.get("val"), torch.Tensor)
        and (_is_viewed(result) or (flow.target is _COND and _is_outlived(result, flow, position)))
    ]


def _is_viewed(result: Node) -> bool:
    """Whether a view is taken of it, which ExecuTorch plans where nothing was put, or refuses."""
    return any(op_name(user) == _VIEW for user in result.users)


def _is_outlived(result: Node, cond: Node, position: Mapping[Node, int]) -> bool:
    """Whether it is read after another flow has run."""
    last = _last_read(result, position)
    return any(
        position[cond] < index <= last for node, index in position.items() if is_flow(node.target)
    )


def all_overwritten_results(program: ExportedProgram, late: Mapping[str, int]) -> list[Node]:
    """Those of a method and of its branches; `late` is for the nodes of the method itself."""
    results = [
        result for result in overwritten_results(program.graph, late) if result.name not in late
    ]
    work = [program.graph_module]
    while work:
        for _, branch, _ in get_control_flow_submodules(work.pop()):
            results += overwritten_results(branch.graph)
            work.append(branch)
    return results


def _last_read(node: Node, position: Mapping[Node, int]) -> int:
    """Position of the last node that reads a value, or a view of it."""
    return max(
        (
            max(position[user], _last_read(user, position) if op_name(user) == _VIEW else 0)
            for user in node.users
        ),
        default=position[node],
    )
