"""Promotion: what torch promotes to a common dtype and ExecuTorch's dialect wants in it already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from etdev.graph.nodes import graph_modules
from etdev.graph.symbols import with_own_graphs

aten = torch.ops.aten
_JOINING = (aten.cat.default, aten.stack.default)
_QUOTIENT = aten.floor_divide.default
# Ops whose kernels promote every mixture but this one.
_CHOOSING = (aten.where.self, aten.pow.Tensor_Tensor, aten.remainder.Tensor, aten.fmod.Tensor)
_HALVES = {torch.float16, torch.bfloat16}
# Their kernels compare integers with halves in a wider dtype than PyTorch does.
_COMPARING = tuple(getattr(aten, name).Tensor for name in ("eq", "ne", "lt", "le", "gt", "ge"))


def with_promoted_inputs(program: ExportedProgram) -> ExportedProgram:
    """Convert what is joined, chosen from or compared to the dtype that torch promotes it to.

    Args:
        program: An ATen program; it is not changed, and returned if there is nothing to convert.
    """
    modules = graph_modules(program.graph_module)
    if not any(_inputs(node) for module in modules for node in module.graph.nodes):
        return program
    copied = with_own_graphs(program)
    for module in graph_modules(copied.graph_module):
        for node in list(module.graph.nodes):
            _promote(module.graph, node)
        module.recompile()
    return copied


def _promote(graph: Graph, node: Node) -> None:
    converted = {}
    for source in _inputs(node):
        dtype = _dtype(node)
        with graph.inserting_before(node):
            copy = graph.call_function(aten._to_copy.default, (source,), {"dtype": dtype})
        copy.meta = {**node.meta, "val": source.meta["val"].to(dtype)}
        converted[source] = copy
    if converted:
        node.args = map_arg(node.args, lambda source: converted.get(source, source))


def _inputs(node: Node) -> list[Node]:
    """The inputs of a node that have to be converted."""
    if node.target not in (*_JOINING, *_CHOOSING, *_COMPARING, _QUOTIENT):
        return []
    values = dict.fromkeys(_values(node))
    dtypes = {value.meta["val"].dtype for value in values}
    if node.target in _CHOOSING and not dtypes >= _HALVES:
        return []
    if node.target in _COMPARING and (dtypes.isdisjoint(_HALVES) or _dtype(node) not in _HALVES):
        return []
    return [value for value in values if value.meta["val"].dtype != _dtype(node)]


def _dtype(node: Node) -> torch.dtype:
    """What torch promotes the inputs of a node to."""
    if node.target in _COMPARING:
        return torch.result_type(*(value.meta["val"] for value in _values(node)))
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def _values(node: Node) -> Iterator[Node]:
    """What is joined, chosen from or compared."""
    values: Any = node.args[0] if node.target in _JOINING else node.args
    for value in values[1:] if node.target is aten.where.self else values:
        if isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor):
            yield value
