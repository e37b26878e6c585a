"""Rows of the quirks table: kernels that can't read or write tensors which are channels last.

A kernel takes all its tensors in one order of dimensions, and many compute in the contiguous one
whatever the order is: some check it and fail at run time, some are wrong. ExecuTorch makes the
input of five such ops contiguous.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import define, field
from executorch.exir.tensor import dim_order_from_stride
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from etdev.graph import aten_op
from etdev.quirks import EMIT, UNREAD_ORDER, OwnProgram, Quirk, Rejection
from etdev.upstream.operators import OpOverload, edge_ops
from etdev.upstream.trees import pytree

aten = torch.ops.aten
# Kernels that compute in the order of their input, and ops whose input ExecuTorch makes contiguous.
_FREE = {
    *(aten.convolution.default, aten.max_pool2d_with_indices.default, aten.avg_pool2d.default),
    *(aten._adaptive_avg_pool2d.default, aten.mean.dim, aten.sum.dim_IntList, aten.expand.default),
    *(aten.upsample_nearest2d.vec, aten.upsample_bilinear2d.vec, aten.clone.default),
    aten._to_copy.default,
}
# Its ops change the order.
_CHANGING = "dim_order_ops"
# Pointwise, although torch doesn't tag them so.
_POINTWISE = {aten.gelu.default, aten.elu.default, aten.leaky_relu.default, aten.hardtanh.default}
_LAST = (0, 2, 3, 1)


def misread(program: ExportedProgram) -> list[Node]:
    """Return the nodes whose kernel can't read or write tensors that are channels last."""
    nodes = (node for module in _modules(program) for node in module.graph.nodes)
    return [node for node in nodes if _is_misread(node)]


def copy_contiguous(program: OwnProgram, _: Sequence[Node]) -> OwnProgram:
    """Put copies around kernels that can't read or write channels last."""
    for module in _modules(program):
        _Copies(module.graph).insert()
        module.recompile()
    return _with_named_results(program)


def miswritten(program: ExportedProgram) -> list[int]:
    """Return the positions of results in another order than their buffers."""
    results: Any = program.graph.output_node().args[0]
    return [
        i for i, value in _buffers(program) if _is_last(results[i].meta["val"]) != _is_last(value)
    ]


def copy_results(program: OwnProgram, found: Sequence[int]) -> OwnProgram:
    """Give the new values of buffers the order of the buffers."""
    graph, values = program.graph, dict(_buffers(program))
    output = graph.output_node()
    results: Any = list(output.args[0])
    for index in found:
        with graph.inserting_before(output):
            results[index] = _copied(graph, results[index], torch.empty_like(values[index]))
    output.args = (tuple(results),)
    program.graph_module.recompile()
    return _with_named_results(program)


def _buffers(program: ExportedProgram) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the positions of results that are written to buffers, and the buffers' values."""
    signature = program.graph_signature
    inputs = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    values = {target: inputs[name] for name, target in signature.inputs_to_buffers.items()}
    for index, spec in enumerate(signature.output_specs):
        if spec.target in values:
            yield index, values[spec.target]


def _modules(program: ExportedProgram) -> list[GraphModule]:
    """Return the graph module of a program, and those of the branches of control flow."""
    return [each for each in program.graph_module.modules() if isinstance(each, GraphModule)]


def _with_named_results(program: OwnProgram) -> OwnProgram:
    """Write the names of the nodes that a program returns into its signature."""
    results: Any = program.graph.output_node().args[0]
    specs = program.graph_signature.output_specs
    for index, (spec, result) in enumerate(zip(specs, results, strict=True)):
        if isinstance(spec.arg, TensorArgument):
            specs[index] = OutputSpec(spec.kind, TensorArgument(result.name), spec.target)
    return program


@define(eq=False)
class _Copies:
    """The copies in one graph.

    Args:
        graph: The graph, which is changed.
        contiguous: The contiguous form of each value that is channels last.
        copies: The channels-last copies that the readers of results are given.
    """

    graph: Graph
    contiguous: dict[Node, Node] = field(factory=dict)
    copies: list[Node] = field(factory=list)

    def insert(self) -> None:
        """Insert the copies."""
        for node in list(self.graph.nodes):
            if not _is_misread(node):
                continue
            with self.graph.inserting_before(node):
                node.args = map_arg(node.args, self._read)
                node.kwargs = map_arg(node.kwargs, self._read)
            for result in _results(node):
                if _is_last(result.meta["val"]):
                    self._restore(result)
            node.meta["val"] = pytree.tree_map(_contiguous, node.meta["val"])
        for copy in self.copies:
            if not copy.users:
                self.graph.erase_node(copy)

    def _read(self, source: Node) -> Node:
        """Return the contiguous form of a value."""
        if not _is_last(source.meta.get("val")):
            return source
        if source not in self.contiguous:
            value = _contiguous(source.meta["val"])
            self.contiguous[source] = _copied(self.graph, source, value)
        return self.contiguous[source]

    def _restore(self, result: Node) -> None:
        """Copy a result for its readers, into the memory order that they expect."""
        value = result.meta["val"]
        with self.graph.inserting_after(result):
            last = _copied(self.graph, result, value)
        result.replace_all_uses_with(last, delete_user_cb=lambda user: user is not last)
        result.meta["val"] = _contiguous(value)
        self.contiguous[last] = result
        self.copies.append(last)


def _copied(graph: Graph, source: Node, value: torch.Tensor) -> Node:
    """Return a copy of a node's value in the order of another value."""
    copy = graph.call_function(
        edge_ops.edge.dim_order_ops._to_dim_order_copy.default,
        (source,),
        {"dim_order": list(dim_order_from_stride(value.stride()))},
    )
    copy.meta = {k: v for k, v in source.meta.items() if k not in ("val", "delegation_tag")}
    copy.meta["val"] = value
    return copy


def _results(node: Node) -> list[Node]:
    """Return a node, or the nodes that take its results apart."""
    if isinstance(node.meta["val"], torch.Tensor):
        return [node]
    return [user for user in node.users if user.target is operator.getitem]


def _is_misread(node: Node) -> bool:
    """Return True if a node is computed by a kernel that can't read or write its tensors."""
    op = aten_op(node.target) if node.op == "call_function" else None
    # No kernel is needed to read a size.
    if isinstance(node.meta.get("val"), torch.SymInt):
        return False
    if op is aten.convolution.default:
        return _mixes_orders(node)
    if not isinstance(op, OpOverload) or op.namespace == _CHANGING or op in _FREE:
        return False
    values = list(_tensors(node))
    if not any(map(_is_last, values)):
        return False
    pointwise = torch.Tag.pointwise in op.tags or op in _POINTWISE
    alike = all(value.shape == values[0].shape and _is_last(value) for value in values)
    return not (pointwise and alike)


def _mixes_orders(node: Node) -> bool:
    """Return True if a convolution has tensors in two orders, or a result in an unknown one."""
    # The runtime takes one channel for contiguous, whatever the order of the others.
    if _order(node.meta["val"]) not in (_LAST, tuple(range(node.meta["val"].dim()))):
        return any(map(_is_last, _tensors(node)))
    weight: Any = node.args[1]
    # A bias has no order.
    planes = (value for value in _tensors(node) if value.dim() > 1)
    return _is_last(weight.meta["val"]) and not all(map(_is_last, planes))


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    """Yield the tensors that a node returns and reads."""
    read = [source.meta.get("val") for source in node.all_input_nodes]
    for value in pytree.tree_leaves([node.meta.get("val"), read]):
        if isinstance(value, torch.Tensor):
            yield value


def _contiguous(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    # torch takes one row or column for contiguous, whatever its strides.
    return torch.empty_like(value, memory_format=torch.contiguous_format)


def _is_last(value: Any) -> bool:
    """Return True if a value is channels last, by its strides."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    if any(isinstance(stride, int) and stride == 0 for stride in value.stride()):
        return False
    return _order(value) == _LAST


def _order(value: torch.Tensor) -> tuple[int, ...]:
    return tuple(dim_order_from_stride(value.stride()))


CHANNELS_LAST_KERNELS = Quirk(
    name="channels-last-kernels",
    stage=EMIT,
    summary="Most portable kernels fail or are wrong for tensors that are channels last.",
    upstream="pytorch/executorch#16507, #11086 (fixed by PR #20878), #16429 (PR #21517); "
    "executorch/kernels/portable/cpu/util/kernel_ops_util.cpp and "
    "executorch/runtime/core/exec_aten/util/tensor_util.h, tensors_have_same_dim_order",
    find=misread,
    fix=copy_contiguous,
    in_loop=UNREAD_ORDER,
)
CHANNELS_LAST_BUFFERS = Quirk(
    name="channels-last-buffers",
    stage=EMIT,
    summary="The kernel of `copy_` fails on a new value in another memory order than its buffer.",
    upstream="report written 2026-11-27; executorch/kernels/portable/cpu/op_copy.cpp, copy_",
    find=miswritten,
    fix=copy_results,
    in_loop=Rejection(
        "the portable kernel of copy_ fails on the new value of a buffer in another memory order",
        "lower with etdev.Lowerer, which copies it to the order of the buffer",
    ),
)
QUIRKS = (
    CHANNELS_LAST_KERNELS,
    # The copies that it adds have the order of their buffer.
    CHANNELS_LAST_BUFFERS,
)
