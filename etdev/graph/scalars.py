"""Scalars: numbers that ops take for tensors, which ExecuTorch would round.

It makes a float a tensor in float32, also beside one in float64, and a number that depends on data
one in float32 or int32. A tensor without dimensions then has no say in the dtype of the result, or
less than such a number.
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
from torch.fx.node import map_arg

from etdev.graph.nodes import graph_modules
from etdev.graph.symbols import fake_mode, with_own_graphs

aten = torch.ops.aten
_CONVERT = aten._to_copy.default
_INHERITED = ("nn_module_stack", "source_fn_stack", "stack_trace", "from_node", "custom")


def with_exact_scalars(program: ExportedProgram) -> ExportedProgram:
    """Make tensors of the numbers that ops take for tensors and that ExecuTorch would round.

    Others stay as they are.

    Args:
        program: An ATen program; it is not changed, and returned if nothing would be rounded.
    """
    mode = fake_mode(program.graph.nodes)
    if mode is None or not (any(rounded_in(program)) or any(_widened_in(program))):
        return program
    copied = with_own_graphs(program)
    for module in graph_modules(copied.graph_module):
        with mode:
            _make_tensors(module.graph)
            _compute_wide(module.graph)
        module.recompile()
    return copied


def rounded_in(program: ExportedProgram) -> Iterator[tuple[Node, int, torch.dtype]]:
    """As `rounded_scalars`, of a program and of its branches."""
    for module in graph_modules(program.graph_module):
        yield from rounded_scalars(module.graph)


def _make_tensors(graph: Graph) -> None:
    for node, index, dtype in list(rounded_scalars(graph)):
        value = node.args[index]
        known = isinstance(value, float | int)
        op, args = (aten.full, ((), value)) if known else (aten.scalar_tensor, (value,))
        with graph.inserting_before(node):
            tensor = graph.call_function(op.default, args, {"dtype": dtype})
        tensor.meta = {key: node.meta[key] for key in _INHERITED if key in node.meta}
        tensor.meta["val"] = torch.empty((), dtype=dtype)
        node.update_arg(index, tensor)


def _compute_wide(graph: Graph) -> None:
    """Compute in the dtype that a number would have, and convert the result."""
    for node, wide in list(_widened(graph)):
        given = {}
        with graph.inserting_before(node):
            for source in node.all_input_nodes:
                given[source] = graph.call_function(_CONVERT, (source,), {"dtype": wide})
            args = map_arg(node.args, given.__getitem__)
            result = graph.call_function(node.target, args, dict(node.kwargs))  # type: ignore[arg-type]
        for each in (*given.values(), result):
            each.meta = {key: node.meta[key] for key in _INHERITED if key in node.meta}
            each.meta["val"] = torch.empty((), dtype=wide)
        # The node itself stays, since it may be a result.
        node.target, node.args = _CONVERT, (result,)
        node.kwargs = {"dtype": node.meta["val"].dtype}


def _widened_in(program: ExportedProgram) -> Iterator[tuple[Node, torch.dtype]]:
    for module in graph_modules(program.graph_module):
        yield from _widened(module.graph)


def _widened(graph: Graph) -> Iterator[tuple[Node, torch.dtype]]:
    """What a number beside tensors without dimensions makes of another dtype, and of which."""
    for node in graph.nodes:
        result = node.meta.get("val")
        if not isinstance(node.target, OpOverload) or not isinstance(result, torch.Tensor):
            continue
        values = list(_values(node))
        numbers = [value for _, value in _scalars(node) if type(value) in (int, float)]
        if not numbers or any(not isinstance(v, torch.Tensor) or v.dim() for v in values):
            continue
        wide = torch.float32 if any(isinstance(n, float) for n in numbers) else torch.int64
        for value in values:
            wide = torch.promote_types(wide, value.dtype)
        # The result of a comparison is not of the dtype in which it is made.
        if result.dtype not in (wide, torch.bool):
            yield node, wide


def rounded_scalars(graph: Graph) -> Iterator[tuple[Node, int, torch.dtype]]:
    """The numbers of a graph that ExecuTorch would round: node, argument, and an exact dtype."""
    for node in graph.nodes:
        if not isinstance(node.target, OpOverload):
            continue
        beside = {v.dtype for v in _values(node) if isinstance(v, torch.Tensor)}
        for index, value in _scalars(node):
            if dtype := _exact(value, beside) or _divided(node, value):
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


def _divided(node: Node, value: Any) -> torch.dtype | None:
    """What an integer that is divided by or into has to be made, beside smaller ones.

    If a plugin keeps the op whole, ExecuTorch's verifier refuses what is not of one dtype.
    """
    result = node.meta.get("val")
    if node.target is not aten.floor_divide.default or type(value) is not int:
        return None
    assert isinstance(result, torch.Tensor)
    same = result.dtype == torch.int64 or result.dtype.is_floating_point
    return None if same else result.dtype


def _rounds(value: float) -> bool:
    return not math.isnan(value) and torch.tensor(value).item() != value


def _is_small(value: torch.SymInt) -> bool:
    """Whether a number always is an int32."""
    bounds = value.node.shape_env.bound_sympy(value.node.expr)
    limits = torch.iinfo(torch.int32)
    return bool(bounds.lower >= limits.min and bounds.upper <= limits.max)
