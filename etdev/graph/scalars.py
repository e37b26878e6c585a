"""Scalars: numbers that ops take for tensors, which ExecuTorch would round.

It makes a float a tensor in float32, also beside one in float64, and a number that depends on data
one in float32 or int32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from etdev.graph.nodes import graph_modules
from etdev.graph.symbols import fake_mode, with_own_graphs

aten = torch.ops.aten
_INHERITED = ("nn_module_stack", "source_fn_stack", "stack_trace", "from_node", "custom")


def with_exact_scalars(program: ExportedProgram) -> ExportedProgram:
    """Make tensors of the numbers that ops take for tensors and that ExecuTorch would round.

    Others stay as they are.

    Args:
        program: An ATen program; it is not changed, and returned if nothing would be rounded.
    """
    mode = fake_mode(program.graph.nodes)
    if mode is None or not any(rounded_in(program)):
        return program
    copied = with_own_graphs(program)
    for module in graph_modules(copied.graph_module):
        with mode:
            _make_tensors(module.graph)
        module.recompile()
    return copied


def rounded_in(program: ExportedProgram) -> Iterator[tuple[Node, int, torch.dtype]]:
    """As `rounded_scalars`, of a program and of its branches."""
    for module in graph_modules(program.graph_module):
        yield from rounded_scalars(module.graph)


def _make_tensors(graph: Graph) -> None:
    for node, index, dtype in list(rounded_scalars(graph)):
        value = node.args[index]
        known = isinstance(value, float)
        op, args = (aten.full, ((), value)) if known else (aten.scalar_tensor, (value,))
        with graph.inserting_before(node):
            tensor = graph.call_function(op.default, args, {"dtype": dtype})
        tensor.meta = {key: node.meta[key] for key in _INHERITED if key in node.meta}
        tensor.meta["val"] = torch.empty((), dtype=dtype)
        node.update_arg(index, tensor)


def rounded_scalars(graph: Graph) -> Iterator[tuple[Node, int, torch.dtype]]:
    """The numbers of a graph that ExecuTorch would round: node, argument, and an exact dtype."""
    for node in graph.nodes:
        if not isinstance(node.target, OpOverload):
            continue
        beside = {v.dtype for v in _values(node) if isinstance(v, torch.Tensor)}
        for index, value in _scalars(node):
            if dtype := _exact(value, beside):
                yield node, index, dtype


def _values(node: Node) -> Iterator[Any]:
    return (source.meta.get("val") for source in node.all_input_nodes)


def _scalars(node: Node) -> Iterator[tuple[int, Any]]:
    """The arguments that ought to be tensors, by their position."""
    schema: Any = node.target._schema  # type: ignore[union-attr]
    for index, (argument, value) in enumerate(zip(schema.arguments, node.args, strict=False)):
        if str(argument.type) in ("Tensor", "Optional[Tensor]"):
            yield index, value.meta.get("val") if isinstance(value, Node) else value


def _exact(value: Any, beside: set[torch.dtype]) -> torch.dtype | None:
    """What a number has to be made if ExecuTorch would round it; None otherwise."""
    double = torch.float64 in beside
    if isinstance(value, float):
        return torch.float64 if double and _rounds(value) else None
    if isinstance(value, torch.SymFloat):
        return torch.float64 if double else None
    if isinstance(value, torch.SymInt) and free_unbacked_symbols(value):
        # Beside smaller integers it would make the result larger.
        wide = torch.int64 in beside or any(dtype.is_floating_point for dtype in beside)
        return torch.int64 if wide and not _is_small(value) else None
    return None


def _rounds(value: float) -> bool:
    return not math.isnan(value) and torch.tensor(value).item() != value


def _is_small(value: torch.SymInt) -> bool:
    """Whether a number always is an int32."""
    bounds = value.node.shape_env.bound_sympy(value.node.expr)
    limits = torch.iinfo(torch.int32)
    return bool(bounds.lower >= limits.min and bounds.upper <= limits.max)
