"""Capability: which nodes torch-tensorrt could build engines of, asked of its own partitioner."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from etdev import Refusal
from etdev.graph import aten_op, computed_from, constants, op_name
from etdev_trt import vendor

# The edge dialect's copies, which name the order of the dimensions in memory.
_COPIES = {
    "dim_order_ops::_clone_dim_order": torch.ops.aten.clone.default,
    "dim_order_ops::_to_dim_order_copy": torch.ops.aten._to_copy.default,
}


def ops_to_keep(
    program: ExportedProgram, options: vendor.Options
) -> tuple[list[Any], Callable[[Node], bool]]:
    """ATen ops that torch-tensorrt converts as one, and the check for a node."""
    converts = vendor.converts(options)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    found = {node.target for node in calls if converts(node)}
    # Every wish costs the host a second look; what both sides decompose, or neither, is none.
    theirs, ours = vendor.decompositions(), torch.export.default_decompositions()
    return sorted((op for op in found if op in ours and op not in theirs), key=str), converts


def match(
    program: ExportedProgram, taken: Mapping[str, str], options: vendor.Options
) -> tuple[list[str], list[Refusal]]:
    """Nodes for engines in graph order, and why not the others.

    Args:
        program: Edge-dialect program.
        taken: Names of nodes that are not to be had.
        options: The plugin's build options.
    """
    module = GraphModule(program.graph_module, aten_graph(program))
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    unfit = {node.name: why for node in calls if (why := _unfit_values(node))}
    # torch-tensorrt folds these before it counts ops; here they follow those that read them.
    folded = computed_from(program, constants(program))
    mine = vendor.blocks(module, options, {*taken, *unfit, *folded})
    converts = vendor.converts(options)
    for node in reversed(calls):
        follows = node.name in folded and all(user.name in mine for user in node.users)
        if follows and node.name not in unfit and node.name not in taken and converts(node):
            mine.add(node.name)
    refusals = [
        Refusal(node, *(unfit.get(node.name) or _why_not(node, folded, converts)))
        for node in calls
        if node.name not in mine and node.name not in taken
    ]
    return [node.name for node in calls if node.name in mine], refusals


def _why_not(
    node: Node, folded: Container[str], converts: Callable[[Node], bool]
) -> tuple[str, str]:
    if not converts(node):
        return "op", f"torch-tensorrt does not convert this {op_name(node)}"
    if node.name in folded:
        return "constant", "made of constants alone, and not only engines read it"
    return "block", "too few ops together for an engine"


def aten_graph(program: ExportedProgram) -> Graph:
    """A program's graph with ATen ops for those of the edge dialect; nodes keep their names."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in program.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "call_function":
            _make_aten(copies[node])
    return graph


def _make_aten(node: Node) -> None:
    schema = getattr(node.target, "_schema", None)
    order: Any = node.kwargs.get("dim_order") or ()
    if schema is not None and schema.name in _COPIES and list(order) == sorted(order):
        node.target = _COPIES[schema.name]
        node.kwargs = {key: value for key, value in node.kwargs.items() if key == "dtype"}
    else:
        node.target = aten_op(node.target)


def _unfit_values(node: Node) -> tuple[str, str] | None:
    """Code and text of a refusal, if a node makes or takes what can't cross an engine's border."""
    for value in pytree.tree_leaves([n.meta.get("val") for n in (node, *node.all_input_nodes)]):
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return "scalar", "an engine takes and gives only tensors"
        if isinstance(value, torch.Tensor) and value.dtype is torch.float64:
            return "dtype", "TensorRT has no float64"
    return None
