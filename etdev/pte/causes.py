"""Causes: what ExecuTorch says of a whole program while it emits it, said of nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from executorch.exir import EdgeProgramManager
from executorch.exir.tensor import dim_order_from_stride
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from etdev.errors import LoweringError
from etdev.graph.nodes import calls_in, op_name, upper_bound
from etdev.graph.ops import ORDERED, aten_op
from etdev.graph.source import ops_with_lines, where
from etdev.graph.symbols import unbacked

# Followed by a set of ops without their overloads, such as `{'torchao::embedding'}`.
_WITHOUT_KERNELS = "Missing out variants"
# Ops of sizes have none and need none.
_TORCH = ("aten", "prim", "prims", "executorch_prim")


def name_cause(manager: EdgeProgramManager, error: Exception) -> None:
    """Say which nodes an error of ExecuTorch is about, if it is a known one.

    Raises:
        LoweringError: There are some.
    """
    if "upper bound" in str(error):
        _name_unbounded(manager, error)
    if isinstance(error, GuardOnDataDependentSymNode):
        _name_unordered(manager, error)
    # Its passes call ops that have no kernel, which may fail with errors of their own.
    _name_without_kernels(manager, error)


def _name_without_kernels(manager: EdgeProgramManager, error: Exception) -> None:
    """Name the ops that no plugin took and that have no form for a kernel."""
    named = re.findall(r"'(\w+::\w+)", str(error)) if _WITHOUT_KERNELS in str(error) else ()
    ops = {name.replace("::", ".") for name in named}
    roots = [manager.exported_program(name).graph_module for name in manager.methods]
    nodes = [
        node
        for root in roots
        for node in calls_in(root)
        if op_name(node).rpartition(".")[0] in ops or _has_no_out_variant(node)
    ]
    if nodes:
        raise LoweringError(
            "to_executorch",
            f"no plugin took {ops_with_lines(nodes)}, and ExecuTorch has no kernel without an out "
            "variant of the op",
            "write it with other ops, give it to a plugin, or register its out variant and kernel",
        ) from error


def _has_no_out_variant(node: Node) -> bool:
    """Whether a node is an op of somebody's library that has none, or one with effects."""
    if node.target is ORDERED:
        return True
    op = aten_op(node.target)
    if not isinstance(op, OpOverload) or op.namespace in _TORCH:
        return False
    packet = op.overloadpacket
    schemas = (getattr(packet, name)._schema for name in packet.overloads())
    return not any(argument.is_out for schema in schemas for argument in schema.arguments)


def _name_unbounded(manager: EdgeProgramManager, error: Exception) -> None:
    """Say which value has a size that depends on data and that nothing bounds."""
    for method in manager.methods:
        for node in manager.exported_program(method).graph.nodes:
            if problem := unbounded("to_executorch", method, node):
                raise problem from error


def unbounded(who: str, method: str, node: Node) -> LoweringError | None:
    """The error for a node with a size that depends on data and that nothing bounds.

    Args:
        who: The stage that refuses it.
        method: The method's name.
        node: Any node of its program.
    """
    sizes = getattr(node.meta.get("val"), "shape", ())
    endless = [size for size in sizes if upper_bound(size) is None]
    if not endless:
        return None
    return LoweringError(
        who,
        f"{node.name} of method {method!r} has size {endless[0]}, which depends on data and has "
        f"no upper bound{where(node)}",
        "bound it in the model, such as with torch._check(n <= 1024)",
    )


def _name_unordered(manager: EdgeProgramManager, error: Exception) -> None:
    """Say which value has strides that ExecuTorch can't put in order."""
    for method in manager.methods:
        for node in manager.exported_program(method).graph.nodes:
            if unbacked(_inner(node)):
                raise unordered("to_executorch", method, node) from error


def is_unordered(node: Node) -> bool:
    """Whether a node will have strides that ExecuTorch can't put in order, once it traces again."""
    if not unbacked(inner := _inner(node)):
        return False
    # Products of the inner sizes, in place of which torch says that they are at least one.
    strides = [math.prod(inner[dim:]) for dim in range(len(inner) + 1)]
    try:
        dim_order_from_stride(strides)
    except GuardOnDataDependentSymNode:
        return True
    return False


def unordered(who: str, method: str, node: Node) -> LoweringError:
    """The error for such a node; the arguments are as for `unbounded`."""
    return LoweringError(
        who,
        f"{node.name} of method {method!r} has inner sizes {tuple(_inner(node))}, and ExecuTorch "
        "can't tell the order in memory where one that depends on data may be 0"
        f"{where(node)}",
        "transpose it, so that the dimension that depends on data is the first",
    )


def _inner(node: Node) -> Sequence[Any]:
    inner: Sequence[Any] = getattr(node.meta.get("val"), "shape", ())[1:]
    return inner
