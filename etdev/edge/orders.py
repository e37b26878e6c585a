"""Orders: portable kernels that can't read channels last are given contiguous tensors.

A kernel takes all its tensors in one order of dimensions, and many compute in the contiguous one
whatever the order is: some of them check it and fail at run time, some are wrong. ExecuTorch makes
the input of five such ops contiguous; here it is done for the rest.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from attrs import define, field
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.tensor import dim_order_from_stride
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from etdev.graph.layout import is_contiguous_order, is_known_order
from etdev.graph.nodes import graph_modules
from etdev.graph.ops import aten_op
from etdev.graph.signature import renamed

aten = torch.ops.aten
# Kernels that compute in the order of their input, ops whose input ExecuTorch makes contiguous, and
# those that change the order.
_FREE = {
    *(aten.convolution.default, aten.max_pool2d_with_indices.default, aten.avg_pool2d.default),
    *(aten._adaptive_avg_pool2d.default, aten.mean.dim, aten.sum.dim_IntList, aten.expand.default),
    *(aten.upsample_nearest2d.vec, aten.upsample_bilinear2d.vec, aten.clone.default),
    aten._to_copy.default,
}
_CHANGING = "dim_order_ops"
# Pointwise, although torch does not say so of them.
_POINTWISE = {aten.gelu.default, aten.elu.default, aten.leaky_relu.default, aten.hardtanh.default}


def settle_orders(program: ExportedProgram) -> None:
    """Put copies around the kernels of a program that can't read channels last.

    Args:
        program: A delegated edge-dialect program; its graph, branches and signature are changed.
    """
    names: dict[str, str] = {}
    for module in graph_modules(program.graph_module):
        settled = _Settled(module.graph)
        settled.run()
        if settled.names or settled.plain:
            module.recompile()
        if module is program.graph_module:
            names = settled.names
    specs = program.graph_signature.output_specs
    specs[:] = [renamed(spec, names) for spec in specs]
    _settle_writes(program)


def _settle_writes(program: ExportedProgram) -> None:
    """Give the new values of buffers the order of the buffers; ExecuTorch copies as they lie."""
    graph, signature = program.graph_module.graph, program.graph_signature
    inputs = {node.name: node for node in graph.find_nodes(op="placeholder")}
    buffers = {target: inputs[name] for name, target in signature.inputs_to_buffers.items()}
    output = graph.output_node()
    results = list(output.args[0])
    for index, spec in enumerate(signature.output_specs):
        value = buffers[spec.target].meta["val"] if spec.target in buffers else None
        if value is None or _is_last(results[index].meta["val"]) == _is_last(value):
            continue
        with graph.inserting_before(output):
            results[index] = _copied(graph, results[index], torch.empty_like(value))
        specs = signature.output_specs
        specs[index] = renamed(spec, {spec.arg.name: results[index].name})
    output.args = (tuple(results),)
    program.graph_module.recompile()


def misread(program: ExportedProgram) -> Iterator[Node]:
    """The nodes of an edge-dialect program whose portable kernel can't read channels last."""
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            # To read a size no kernel is needed.
            if not isinstance(node.meta.get("val"), torch.SymInt) and _is_misread(node):
                yield node


def miswritten(node: Node) -> bool:
    """Whether ExecuTorch writes down another order of a value than its kernel is asked for.

    Strides stand for several orders where a dimension has one element.
    """
    order: Any = node.kwargs.get("dim_order")
    value = node.meta.get("val")
    if order is None or not isinstance(value, torch.Tensor):
        return False
    return tuple(order) != tuple(dim_order_from_stride(value.stride()))


@define(eq=False)
class _Settled:
    """Puts the copies into one graph.

    Args:
        graph: It is changed.
        plain: The contiguous form of each value that is channels last.
        names: The new name of each result that was replaced.
    """

    graph: Graph
    plain: dict[Node, Node] = field(factory=dict)
    names: dict[str, str] = field(factory=dict)

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if not _is_misread(node):
                continue
            with self.graph.inserting_before(node):
                node.args = map_arg(node.args, self._contiguous)
                node.kwargs = map_arg(node.kwargs, self._contiguous)
            for result in _results(node):
                if _is_last(result.meta["val"]):
                    self._restore(result)
            node.meta["val"] = pytree.tree_map(_contiguous, node.meta["val"])
        for last in self.plain:
            if last.name in self.names.values() and not last.users:
                self.graph.erase_node(last)

    def _contiguous(self, source: Node) -> Node:
        if not _is_last(source.meta.get("val")):
            return source
        if source not in self.plain:
            self.plain[source] = _copied(self.graph, source, _contiguous(source.meta["val"]))
        return self.plain[source]

    def _restore(self, result: Node) -> None:
        """Give the readers of a result the order that they expect."""
        value = result.meta["val"]
        with self.graph.inserting_after(result):
            last = _copied(self.graph, result, value)
        result.replace_all_uses_with(last, delete_user_cb=lambda user: user is not last)
        result.meta["val"] = _contiguous(value)
        self.plain[last] = result
        self.names[result.name] = last.name


def _copied(graph: Graph, source: Node, value: torch.Tensor) -> Node:
    """A copy of a node's value in the order of another value."""
    copy = graph.call_function(
        exir_ops.edge.dim_order_ops._to_dim_order_copy.default,
        (source,),
        {"dim_order": list(dim_order_from_stride(value.stride()))},
    )
    copy.meta = {k: v for k, v in source.meta.items() if k not in ("val", "delegation_tag")}
    copy.meta["val"] = value
    return copy


def _results(node: Node) -> list[Node]:
    """A node, or the nodes that take its results apart."""
    if isinstance(node.meta["val"], torch.Tensor):
        return [node]
    return [user for user in node.users if user.target is operator.getitem]


def _is_misread(node: Node) -> bool:
    """Whether a node is computed by a portable kernel that can't read or write its tensors."""
    op = aten_op(node.target) if node.op == "call_function" else None
    if op is aten.convolution.default:
        return _mixes_orders(node)
    if not isinstance(op, OpOverload) or op.namespace == _CHANGING or op in _FREE:
        return False
    values = list(_tensors(node))
    if not any(map(_is_last, values)):
        return False
    pointwise = torch.Tag.pointwise in op.tags or op in _POINTWISE
    return not pointwise or not all(
        value.shape == values[0].shape and _is_last(value) for value in values
    )


def _mixes_orders(node: Node) -> bool:
    """Whether a convolution has tensors in two orders, or a result of which it isn't clear."""
    # The runtime takes one channel for contiguous, whatever the order of the others.
    if _has_unclear_order(node.meta["val"]):
        return any(map(_is_last, _tensors(node)))
    weight: Any = node.args[1]
    # A bias has no order.
    planes = (value for value in _tensors(node) if value.dim() > 1)
    return _is_last(weight.meta["val"]) and not all(map(_is_last, planes))


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    """What a node reads and returns."""
    for value in pytree.tree_leaves(
        [node.meta.get("val"), [source.meta.get("val") for source in node.all_input_nodes]]
    ):
        if isinstance(value, torch.Tensor):
            yield value


def _contiguous(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    # What has one row or column counts as contiguous for torch, whatever its strides.
    return torch.empty_like(value, memory_format=torch.contiguous_format)


def _has_unclear_order(value: torch.Tensor) -> bool:
    """Whether the strides of a value stand for no order that kernels know, as of one channel."""
    return not is_known_order(dim_order_from_stride(value.stride()))


def _is_last(value: Any) -> bool:
    """Whether a value has an order that kernels know and that is not the contiguous one."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    if any(isinstance(stride, int) and stride == 0 for stride in value.stride()):
        return False
    order = dim_order_from_stride(value.stride())
    return is_known_order(order) and not is_contiguous_order(order)
