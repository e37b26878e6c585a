"""Nodes that AotiPartitioner takes, and AOTInductor or CudaBackend's runtime fails on."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch._inductor.decomposition import decompositions
from torch._inductor.lowering import lowerings
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from etdev.graph import aten_op, op_name
from etdev_cuda.kernels import Kernels

# ATen and its like, and the kernels that come with CudaBackend.
_NAMESPACES = (
    *("aten", "prims", "dim_order_ops", "quantized_decomposed"),
    *("executorch_cuda", "triton"),
)


def problem_of(node: Node, kernels: Kernels) -> str | None:
    """Return why a node, or one in its branches, can't be compiled; or None."""
    if not _is_known(node):
        return f"AOTInductor has neither a lowering nor a C shim for {op_name(node)}"
    if aten_op(node.target) is torch.ops.aten.detach.default:
        # Inductor lowers `detach`, and ExecuTorch's form of it reaches Inductor as it is.
        return _not_there("ATen's detach_copy")
    missing = kernels.missing(node)
    if missing is not None:
        own = missing == str(aten_op(node.target))
        return _not_there("its ATen kernel" if own else f"ATen's {missing}")
    if reader := _reader_of_rows(node):
        return (
            "AOTInductor writes C++ code that does not compile if an op "
            f"({reader.name}) reads what {op_name(node)} stacks; return it as it is"
        )
    for name, branch in _branches(node):
        if constant := _tensor_constant(branch):
            return (
                f"AOTInductor takes no tensor constant in a branch, and {name} has {constant}; "
                "pass it to the branch as an operand"
            )
        for inner in branch.graph.nodes:
            if inner.op == "call_function" and (why := problem_of(inner, kernels)):
                return f"{inner.name} in {name}: {why}"
    return None


def _not_there(kernel: str) -> str:
    return f"AOTInductor would call {kernel}, which CudaBackend's runtime does not have"


def _is_known(node: Node) -> bool:
    """Return True if AOTInductor can generate code for a node, or the runtime has its kernel.

    A custom op, such as TensorRT's execute_engine, would need a kernel that the runtime lacks.
    """
    op = aten_op(node.target)
    if not isinstance(op, OpOverload) or op.namespace in _NAMESPACES:
        return True
    return op._can_decompose() or op in lowerings or op in decompositions


def _reader_of_rows(node: Node) -> Node | None:
    """Return the first op that reads the stacked results of a map or scan (torch 2.13)."""
    if node.target is torch.ops.higher_order.map_impl:
        carried = 0
    elif node.target is torch.ops.higher_order.scan:
        carried = len(node.args[1])  # type: ignore[arg-type]
    else:
        return None
    for item in node.users:
        if item.target is operator.getitem and int(str(item.args[1])) >= carried:
            for reader in item.users:
                if reader.op != "output":
                    return reader
    return None


def _branches(node: Node) -> Iterator[tuple[str, GraphModule]]:
    """Return the graphs that a node runs, by name."""
    for source in node.all_input_nodes:
        if source.op == "get_attr":
            module = getattr(node.graph.owning_module, str(source.target), None)
            if isinstance(module, GraphModule):
                yield source.name, module


def _tensor_constant(branch: GraphModule) -> str | None:
    """Return the name of a constant tensor of a branch, which ExecuTorch makes of each number."""
    for node in branch.graph.find_nodes(op="get_attr"):
        if isinstance(getattr(branch, str(node.target), None), torch.Tensor):
            return str(node.name)
    return None
