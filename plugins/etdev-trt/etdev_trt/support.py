"""Nodes that torch-tensorrt's own partitioner would build engines of."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from etdev import Group, KeepWhole, Refusal
from etdev.graph import aten_op, computed_from, op_name, unwritten_constants
from etdev_trt import vendor
from etdev_trt.engine import engines

# The edge dialect's copies, which name the order of the dimensions in memory.
_COPIES = {
    "dim_order_ops::_clone_dim_order": torch.ops.aten.clone.default,
    "dim_order_ops::_to_dim_order_copy": torch.ops.aten._to_copy.default,
}


class Support:
    """The nodes that torch-tensorrt takes with some options.

    Args:
        options: The plugin's build options.
    """

    def __init__(self, options: vendor.Options) -> None:
        self._options = options

    def keep_whole(self, program: ExportedProgram) -> KeepWhole:
        """ATen ops that torch-tensorrt converts as one, and its check for a node."""
        converts = vendor.converts(self._options)
        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        ops = {node.target for node in calls if converts(node)}
        # Every wish costs the host another look, so only ops that ExecuTorch alone decomposes.
        theirs, ours = vendor.decompositions(), torch.export.default_decompositions()
        kept = sorted((op for op in ops if op in ours and op not in theirs), key=str)
        return KeepWhole(kept, converts)

    def match(
        self, program: ExportedProgram, taken: Mapping[str, str]
    ) -> tuple[list[Group], list[Refusal]]:
        """Match the ops that torch-tensorrt's partitioner would put into engines.

        Args:
            program: Edge-dialect program.
            taken: Owners of the nodes that others have, which divide blocks of ops.

        Returns:
            Atomic groups in graph order, and the reasons for refusing the other nodes.
        """
        module = GraphModule(program.graph_module, aten_graph(program))
        gone = {*taken, *engines(program)}
        calls = [node for node in module.graph.nodes if node.op == "call_function"]
        unfit = {node.name: why for node in calls if (why := _unfit_values(node))}
        # torch-tensorrt folds these before it counts ops; here they follow the ops that read them.
        folded = computed_from(program, unwritten_constants(program))
        matched = vendor.blocks(module, self._options, {*gone, *unfit, *folded})
        converts = vendor.converts(self._options)
        for node in reversed(calls):
            follows = node.name in folded and all(user.name in matched for user in node.users)
            if follows and node.name not in unfit and node.name not in gone and converts(node):
                matched.add(node.name)
        refusals = [
            Refusal(node, *(unfit.get(node.name) or _why_not(node, folded, converts)))
            for node in calls
            if node.name not in matched and node.name not in gone
        ]
        return [Group([node]) for node in calls if node.name in matched], refusals


def _why_not(
    node: Node, folded: Container[str], converts: Callable[[Node], bool]
) -> tuple[str, str]:
    if not converts(node):
        return "op", f"torch-tensorrt does not convert this {op_name(node)}"
    if node.name in folded:
        return "constant", "computed from constants alone, and read outside of engines too"
    return "block", "too few ops together for an engine"


def aten_graph(program: ExportedProgram) -> Graph:
    """Return a program's graph with ATen ops instead of edge ops; nodes keep their names."""
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
    """Code and text of a refusal, if an engine can't take or return a node's values."""
    for value in pytree.tree_leaves([n.meta.get("val") for n in (node, *node.all_input_nodes)]):
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return "scalar", "an engine takes and returns only tensors"
        if isinstance(value, torch.Tensor) and value.dtype is torch.float64:
            return "dtype", "TensorRT has no float64"
    return None
